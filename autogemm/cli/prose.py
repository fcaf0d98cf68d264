"""Sentences on the terminal: a line that is too long is folded between words, never inside one."""

import shutil
import sys
import textwrap
from typing import Any

import click

from autogemm.cli import log


def say(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Print prose; on a terminal a line that is too long is folded between words."""
    if err:
        log.printed(text)
    click.secho(folded(text, terminal_width(err=err)), err=err, **style)


def folded(text: str, width: int | None) -> str:
    """Return the text with lines of at most ``width``, None for any; the rest of a line is indented
    by two columns more than its beginning.
    """
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += [line] if len(line) <= width else folded_line(line, width, indent)
    return "\n".join(lines)


def terminal_width(*, err: bool = False) -> int | None:
    """Return the columns of the terminal that standard output (or error) goes to, else None."""
    stream = sys.stderr if err else sys.stdout
    return shutil.get_terminal_size().columns if stream.isatty() else None


def folded_line(line: str, width: int, indent: str = "") -> list[str]:
    """Return a line as lines of at most ``width``, broken between words; ``indent`` begins all but
    the first. A word that is longer than a line stays whole.
    """
    return textwrap.wrap(
        *(line, width),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
