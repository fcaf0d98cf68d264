"""The documents: their commands are calls that the command line understands, their links lead."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from autogemm.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "docs/tutorial/README.md"]
PAGES += [ROOT / "db/README.md", *sorted(ROOT.glob("contrib/*/README.md"))]
COMMANDS = sorted(
    {
        (page.relative_to(ROOT).as_posix(), line[1])
        for page in PAGES
        for line in re.finditer(r"^    (?:\$ )?(autogemm .*)$", page.read_text(), re.MULTILINE)
    }
)


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 60


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[line for _, line in COMMANDS])
def test_a_command_is_understood(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((i for i, word in enumerate(words) if word in "<>|&&"), len(words))]
    command: click.Command = main
    parent = click.Context(main, **main.context_settings)
    while isinstance(command, click.Group) and (words or not command.invoke_without_command):
        name = words.pop(0)
        found = command.get_command(parent, name)
        assert found is not None, name
        command = found
    # Parses options and arguments as a call would, and runs nothing.
    command.make_context(command.name or "", words, parent=parent)


def helps(command: click.Command, parent: click.Context, name: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of those below it."""
    context = click.Context(command, parent, info_name=name, terminal_width=80)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from helps(found, context, below)


def test_every_help_fits_80_columns() -> None:
    """Terminals would break longer lines inside a word."""
    root = click.Context(main, **main.context_settings)
    texts = dict(helps(main, root, "autogemm"))
    assert len(texts) > 30
    long = {
        path: [line for line in text.splitlines() if len(line) > 80] for path, text in texts.items()
    }
    assert {path: lines for path, lines in long.items() if lines} == {}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
