"""The problems that a command is asked for: one, or many."""

from itertools import islice
from pathlib import Path
from typing import Any

from autogemm.catalogue.presets import preset
from autogemm.cli.options import problem_from
from autogemm.model.problem import Layout, Problem
from autogemm.support.errors import UsageError

DEFAULT_SIZE = "4096"
MAX_PROBLEMS = 10_000
MAX_LINE = 200


def problems_from(options: dict[str, Any]) -> tuple[Problem, ...]:
    """What `autogemm.cli.options.problems_options` describe, each once, in the order given.

    Raises UsageError for a size, line, preset or file that is none.
    """
    named = [(size, options["layout"]) for size in options["sizes"]]
    if options["preset"]:
        named += [
            ("x".join(map(str, size)), options["layout"]) for size in preset(options["preset"])
        ]
    if options["problems_file"]:
        named += _lines(options["problems_file"], options["layout"])
    if not named:
        named = [(DEFAULT_SIZE, options["layout"])]
    names = ("dtype", "lda", "ldb", "ldc", "alpha", "beta")
    shared = {name: options[name] for name in names}
    return tuple(
        dict.fromkeys(problem_from(size=size, layout=layout, **shared) for size, layout in named)
    )


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or "" if isinstance(error, OSError) else "it is no text in UTF-8"


def _lines(place: str, layout: str) -> list[tuple[str, str]]:
    """Size and layout of each line; what follows ``#`` is a comment."""
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
