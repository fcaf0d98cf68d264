"""``-v`` and ``--log-file``: what a command does, as lines with a time, on stderr and in a file.

Nothing is set up, and `logging` not imported, before one of the options is given.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from autogemm.support.errors import UsageError
from autogemm.support.messages import masked
from autogemm.support.version import __version__

if TYPE_CHECKING:
    import logging

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
# Already printed on stderr, so only the file gets it.
_PRINTED = "autogemm.printed"
_handlers: list["logging.Handler"] = []


def log_options(command: click.Command) -> None:
    """Add ``-v`` and ``--log-file`` to a command, once."""
    if any(option.name == "log_file" for option in command.params):
        return
    options: list[tuple[tuple[str, ...], Callable[..., None], dict[str, Any]]] = [
        (
            ("-v", "--verbose"),
            _start_on_stderr,
            {"count": True, "help": "Log each step to stderr; -vv logs more."},
        ),
        (
            ("--log-file",),
            _start_in_file,
            {"metavar": "FILE", "help": "Append the log of -vv to this file."},
        ),
    ]
    for names, callback, how in options:
        option = click.Option(names, callback=callback, expose_value=False, **how)
        command.params.append(option)


def _start_on_stderr(context: click.Context, parameter: click.Parameter, count: int) -> None:
    if count:
        import logging

        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(lambda record: record.name != _PRINTED)
        _start(context, handler, logging.DEBUG if count > 1 else logging.INFO)


def _start_in_file(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    if path:
        import logging

        try:
            handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"--log-file {path}: {error.strerror}: give another file") from error
        _start(context, handler, logging.DEBUG)


def _start(context: click.Context, handler: "logging.Handler", level: int) -> None:
    import logging

    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.setLevel(level)
    logger = logging.getLogger("autogemm")
    logger.addHandler(handler)
    logger.setLevel(min(level, logger.level or level))
    logger.propagate = False
    _handlers.append(handler)
    begin = time.monotonic()

    def stop() -> None:
        logger.info("%s: ended after %.2f s", context.command_path, time.monotonic() - begin)
        logger.removeHandler(handler)
        handler.close()
        _handlers.remove(handler)

    # The outermost call; the error has been written by then.
    context.find_root().call_on_close(stop)
    words = " ".join(masked(word) for word in sys.argv[1:])
    python = sys.version.partition(" ")[0]
    logger.info("autogemm %s, Python %s: autogemm %s", __version__, python, words)


def note(text: str, *, detail: bool = False, error: BaseException | None = None) -> None:
    """Write a line if a log was asked for; ``detail`` for -vv, ``error`` with its traceback."""
    if _handlers:
        import logging

        logger = logging.getLogger("autogemm.cli")
        level = logging.ERROR if error else logging.DEBUG if detail else logging.INFO
        logger.log(level, masked(text), exc_info=error if level == logging.ERROR else None)


def printed(text: str) -> None:
    """Write what was printed on stderr to the file, if there is one."""
    if _handlers:
        import logging

        logging.getLogger(_PRINTED).info(masked(text))
