"""The problems that a command is asked for: one, or many."""

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import click

from autogemm.catalogue.presets import preset
from autogemm.cli.options import MATRIX_OPTIONS, Command, MatrixOptions, grouped
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError

DEFAULT_SIZE = "4096"
MAX_PROBLEMS = 10_000
MAX_LINE = 200


@dataclass(frozen=True, slots=True)
class ProblemsOptions(MatrixOptions):
    """Options of one problem or many: sizes, a preset, a file."""

    sizes: tuple[str, ...]
    preset: str | None
    problems_file: str | None

    @property
    def values(self) -> tuple[Problem, ...]:
        """The problems, each once, in the order given.

        Raises UsageError for a size, line, preset or file that holds no problem.
        """
        named = [(size, self.layout) for size in self.sizes]
        if self.preset:
            named += [("x".join(map(str, size)), self.layout) for size in preset(self.preset)]
        if self.problems_file:
            named += _lines(self.problems_file, self.layout)
        if not named:
            named = [(DEFAULT_SIZE, self.layout)]
        return tuple(dict.fromkeys(self.problem(size, layout) for size, layout in named))

    def resized(self, size: str) -> Problem:
        """Return the problem of another size, with the same matrix options."""
        return replace(self, sizes=(size,)).values[0]


def problems_options(command: Command) -> Command:
    """Add the options of one problem or many as one ``problems``.

    They are those of `autogemm.cli.options.problem_options`, with ``--size`` repeatable, and
    ``--preset`` and ``--problems``.
    """
    decorated: Command = grouped(
        "problems",
        ProblemsOptions,
        click.option(
            "--size",
            "sizes",
            multiple=True,
            help="M=N=K as one number, or MxNxK; repeatable.  [default: 4096]",
        ),
        click.option(
            "--preset", metavar="NAME", help="Many: transformer, squares, mixed, suite or ladder."
        ),
        click.option(
            "--problems",
            "problems_file",
            metavar="FILE",
            help="Many: a line each, a size and, if it differs, a layout: 4096x256x1024 nt.",
        ),
        *MATRIX_OPTIONS,
    )(command)
    return decorated


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or "" if isinstance(error, OSError) else "it is not UTF-8 text"


def _lines(place: str, layout: str) -> list[tuple[str, str]]:
    """Return size and layout of each line; text behind ``#`` is a comment."""
    try:
        with Path(place).open(encoding="utf-8") as file:
            lines = list(islice(file, MAX_PROBLEMS + 1))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--problems {place}: cannot be read: {_why(error)}") from error
    if len(lines) > MAX_PROBLEMS:
        raise UsageError(f"--problems {place}: more than {MAX_PROBLEMS} lines")
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        is_problem = len(line) <= MAX_LINE and len(words) <= 2
        if not is_problem or words[1:] not in ([], *([one.value] for one in Layout)):
            raise UsageError(
                f"--problems {place}, line {number}: a size and perhaps a layout "
                f"(4096x256x1024 nt), got {line.strip()[:MAX_LINE]!r}"
            )
        try:
            Problem.of_size(words[0])
        except UsageError as error:
            raise UsageError(f"--problems {place}, line {number}: {error}") from error
        found.append((words[0], words[1] if words[1:] else layout))
    if not found:
        raise UsageError(f"--problems {place}: holds no problem: write a size a line")
    return found
