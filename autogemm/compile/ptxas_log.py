"""Reads what ``--ptxas-options=-v`` prints: resource use and errors."""

import re

from autogemm.model.kernel import Resources

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_STATIC_SMEM = re.compile(r"(\d+) bytes smem")
_CUMULATIVE_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_ERROR = re.compile(r"\b(?:error|fatal)\s*:")


def parse_resources(log: str) -> tuple[Resources, ...]:
    """Resource use of every kernel in the log, sorted by symbol.

    Spills are those of the kernel and of the functions it calls, in bytes per thread; the stack
    is that of the deepest call.
    """
    # ptxas prints one section a kernel, beginning with its name; the text before is none.
    parts = _ENTRY.split(log)[1:]
    kernels = zip(parts[::2], parts[1::2], strict=True)
    return tuple(sorted((_one_kernel(*kernel) for kernel in kernels), key=lambda r: r.kernel))


def first_error(log: str) -> str:
    """The first line that reports an error, or empty text."""
    return next((line.strip() for line in log.splitlines() if _ERROR.search(line)), "")


def _one_kernel(symbol: str, section: str) -> Resources:
    frames = [tuple(map(int, frame)) for frame in _FRAME.findall(section)]
    cumulative_stack = _number(_CUMULATIVE_STACK, section)
    return Resources(
        kernel=symbol,
        registers=_number(_REGISTERS, section),
        spill_store_bytes=sum(stores for _, stores, _ in frames),
        spill_load_bytes=sum(loads for _, _, loads in frames),
        stack_bytes=cumulative_stack or max((stack for stack, _, _ in frames), default=0),
        static_smem_bytes=_number(_STATIC_SMEM, section),
    )


def _number(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0
