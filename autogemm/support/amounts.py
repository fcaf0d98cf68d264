"""Counts and sizes as a person reads and writes them."""

from autogemm.support.errors import UsageError

# Counts from here on are rounded to two digits.
ROUNDED = 10**9


def short_count(count: float) -> str:
    """Return a count as it is read: 3,456, then 5.4 M, then 1.9e15."""
    if abs(count) < 10**6:
        return f"{count:,.0f}"
    if abs(count) < ROUNDED:
        return f"{count / 1e6:.2g} M" if abs(count) < 10**7 else f"{count / 1e6:.0f} M"
    return f"{count:.1e}".replace("e+", "e")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 trial``, ``5,000 trials``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def parse_bytes(text: str) -> int:
    """Return the bytes in ``500M``, ``2 GB``, ``1.5GiB``; units are powers of 1024.

    Raises UsageError for anything else.
    """
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    factor = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}.get(number[-1:], 1)
    try:
        size = float(number if factor == 1 else number[:-1]) * factor
    except ValueError:
        size = -1.0
    if not 0 <= size < 2**60:
        raise UsageError(f"{text!r} is not a size: write 500MB or 2GB")
    return int(size)


def short_bytes(size: float) -> str:
    """Return a size such as 284 MB; units are powers of 1024."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
