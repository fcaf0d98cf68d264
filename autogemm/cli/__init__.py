"""The command line: parse, one library call, print. The only layer that prints.

Commands are imported when they are called, so that ``autogemm -h`` starts at once.
"""

import errno
import importlib
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from autogemm.cli.defaults import name_variables, read_defaults, source_of
from autogemm.cli.log import log_options, note
from autogemm.cli.prose import say
from autogemm.support.errors import AutogemmError, EpilogueError, UsageError
from autogemm.support.interrupt import interrupted_code
from autogemm.support.messages import masked, message
from autogemm.support.naming import did_you_mean
from autogemm.support.version import __version__

# Errors of a full disk, a quota, a limit of a file's size.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors for a path that no file can have.
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)

# Command name -> (module below this package, one line for the overview).
COMMANDS: dict[str, tuple[str, str]] = {
    "tune": ("tune.command", "Find the fastest kernel for a problem on a GPU."),
    "export": ("export.command", "Write the best kernel as one CUDA file."),
    "db": ("db.command", "Query and maintain the tuning database."),
    "record": ("record.command", "Record which GEMMs a PyTorch program calls."),
    "space": ("kernels.commands", "Show a family's parameters and count its legal configs."),
    "new-family": ("kernels.starting", "Create a working kernel family to start from."),
    "explain": ("insight.commands", "Explain why a config is fast or slow."),
    "verify": ("kernels.commands", "Run kernels on edge cases, checked access by access."),
    "render": ("kernels.commands", "Print the CUDA source of one config."),
    "bench": ("bench.command", "Time kernels side by side: rungs, your own, libraries."),
    "profile": ("insight.commands", "Explain what limits a kernel, from hardware counters."),
    "bench-search": ("bench_search.command", "Compare search strategies on recorded spaces."),
    "report": ("insight.commands", "Write one HTML file that explains a run or a benchmark."),
    "plot": ("insight.commands", "Plot a run or a benchmark."),
    "roofline": ("insight.commands", "Show how close kernels come to the roofs of their GPU."),
    "cache": ("cache.command", "Show, clear and limit the files kept on disk."),
    "gpus": ("kernels.commands", "List the attached GPUs, known GPUs and recordings."),
}


class AutogemmGroup(click.Group):
    """Imports a command when it is needed; shows errors as one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, from its module of options."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        for one in command.commands.values() if isinstance(command, click.Group) else (command,):
            log_options(one)
        name_variables(command, (cmd_name,))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named. Raises a UsageError that suggests one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}{did_you_mean(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse the options before the command."""
        with _one_line_errors():
            return super().make_context(*args, **extra)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line for each command, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an AutogemmError becomes one line and its exit code, others are bugs."""
        try:
            with _one_line_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            sys.exit(interrupted_code())
        except BrokenPipeError:
            # `autogemm db list | head`: the reader has closed the pipe.
            sys.stderr.close()
            sys.exit(0)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            click.echo(f"Error: cannot write: {error.strerror}: make room and try again", err=True)
            _drop_output()
            sys.exit(AutogemmError.exit_code)


def _drop_output() -> None:
    """Discard output that could not be written, so that the end of the program does not try
    again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


# From 8.2 on, click answers a call without arguments by an error that prints the help.
_IS_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())


class OneLine(click.ClickException):
    """An error that is shown as one line, with its own exit code; ``place`` shows below it where it
    lies."""

    def __init__(self, text: str, exit_code: int, place: str = "") -> None:
        super().__init__(message(text) + place)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares a class variable

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on stderr, folded between words where that is a terminal."""
        say(f"Error: {self.message}", err=True)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn errors into one line, except that a call without arguments prints the help."""
    try:
        yield
    except EpilogueError as error:
        raise OneLine(str(error), error.exit_code, error.place) from error
    except AutogemmError as error:
        note(str(error), error=error)
        raise OneLine(str(error), error.exit_code) from error
    except click.UsageError as error:
        if error.ctx is None or isinstance(error, _IS_HELP):
            raise
        text = error.format_message().rstrip(".")
        if isinstance(error, click.BadParameter) and error.param is not None:
            text += source_of(error.ctx, error.param)
        text += f" (see {error.ctx.command_path} -h)"
        raise OneLine(text, error.exit_code) from error
    except OSError as error:
        # A path that no system call accepts, wherever it is first used.
        if error.errno not in _NO_PATH:
            raise
        text = f"{error.strerror}: {os.fsdecode(error.filename or '')!r}: give another path"
        raise OneLine(text, UsageError.exit_code) from error


def command_line() -> str:
    """Return the command as typed, for the database, without passwords; bytes of a file name that
    are no UTF-8 are escaped.
    """
    typed = shlex.join(["autogemm", *(masked(word) for word in sys.argv[1:])])
    return typed.encode(errors="backslashreplace").decode()


CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=AutogemmGroup, context_settings=CONTEXT_SETTINGS)
@click.version_option(__version__, prog_name="autogemm")
@click.option(
    "--config-file",
    metavar="FILE",
    envvar="AUTOGEMM_CONFIG_FILE",
    help="Defaults of options, in TOML. Default: autogemm.toml in this folder, else in the user's "
    "folder of settings (Linux: ~/.config/autogemm).",
)
@click.pass_context
def main(context: click.Context, config_file: str | None) -> None:
    """Find the fastest GEMM kernel for your GPU and sizes, verify it, get one CUDA file.

    Every option can also be set by the environment, as in AUTOGEMM_TUNE_BUDGET=30s, or in a file
    of defaults. Options on the command line come first, then the environment, then the file.

    \b
    Examples:
      autogemm tune --gpu auto --size 4096
      autogemm export best.cu
      autogemm db best
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        # https://no-color.org, and no other control codes either. Commands inherit it.
        context.color = False
    elif os.environ.get("FORCE_COLOR"):
        context.color = True
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, context.invoked_subcommand or "")
    if command is not None:
        read_defaults(context, config_file, list(COMMANDS), command)


__all__ = ["AutogemmGroup", "main"]
