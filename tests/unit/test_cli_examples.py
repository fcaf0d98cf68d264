"""Every command has examples, and each is a call that the command line understands."""

import shlex
from collections.abc import Iterator

import click
import pytest

from autogemm.cli import main


def commands(group: click.Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


ALL = list(commands(main))


def examples_of(command: click.Command) -> list[str]:
    text = (command.help or "").partition("Examples:")[2]
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_every_option_says_what_it_does() -> None:
    silent = [
        f"{' '.join(names)} {parameter.opts[0]}"
        for names, command in ALL
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help
    ]
    assert silent == []


@pytest.mark.parametrize(("names", "command"), ALL, ids=[" ".join(names) for names, _ in ALL])
def test_examples_are_understood(names: tuple[str, ...], command: click.Command) -> None:
    examples = examples_of(command)
    assert examples, "a command explains itself by examples"
    own = [one for one in examples if one.startswith(f"autogemm {' '.join(names)}")]
    assert own or any(f"$(autogemm {' '.join(names)})" in one for one in examples)
    # The program's context, whose settings commands inherit, and keep: -h among them.
    parent = click.Context(main, **main.context_settings)
    for example in own:
        words = shlex.split(example.partition(" < ")[0].partition(" > ")[0])
        # Parses options and arguments as a call would, and runs nothing.
        command.make_context(names[-1], words[1 + len(names) :], parent=parent)
