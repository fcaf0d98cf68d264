"""The program's entry, ``autogemm`` and ``python -m autogemm``: Ctrl-C ends it in one line.

Importing the modules of a command takes tenths of a second, during which a KeyboardInterrupt would
be raised in the middle of an arbitrary module. SIGTERM and SIGHUP end it likewise.
"""

# Not `signal`, which imports enums first.
import _signal  # type: ignore[import-not-found]

# Python's own handler, and that of a program that was not told to ignore the signal (nohup).
_OURS = {_signal.SIGINT: _signal.default_int_handler}
_OURS |= {
    getattr(_signal, name): _signal.SIG_DFL
    for name in ("SIGTERM", "SIGHUP")
    if hasattr(_signal, name)
}


def main() -> None:
    """Run the command line."""
    before = {number: _signal.getsignal(number) for number in _OURS}
    ours = [number for number, handler in before.items() if handler == _OURS[number]]
    for number in ours:
        _signal.signal(number, _end)
    from autogemm.cli import main as command_line
    from autogemm.support.interrupt import end_as_by_ctrl_c

    for number in ours:
        _signal.signal(number, before[number])
    end_as_by_ctrl_c()
    command_line(prog_name="autogemm")


def _end(signum: int, frame: object) -> None:
    import os

    os.write(2, b"interrupted\n")
    # Nothing is open yet that would have to be closed; as shells report it.
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
