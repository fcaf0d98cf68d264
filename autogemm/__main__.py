"""The program's entry, ``autogemm`` and ``python -m autogemm``: Ctrl-C ends it in one line.

What commands need takes tenths of a second to import. Until then a KeyboardInterrupt would rise in
the middle of somebody's module.
"""

# Not `signal`, which imports enums first.
import _signal  # type: ignore[import-not-found]

# 128 + SIGINT, as shells report it.
_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    before = _signal.getsignal(_signal.SIGINT)
    # A program that was started with Ctrl-C ignored (nohup) goes on ignoring it.
    is_ours = before is _signal.default_int_handler
    if is_ours:
        _signal.signal(_signal.SIGINT, _end)
    from autogemm.cli import main as command_line

    if is_ours:
        _signal.signal(_signal.SIGINT, before)
    command_line(prog_name="autogemm")


def _end(signum: int, frame: object) -> None:
    import os

    os.write(2, b"interrupted\n")
    # Nothing is open yet that would have to be closed.
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
