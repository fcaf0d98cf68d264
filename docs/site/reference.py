"""Write the pages of the website that are made of the program: commands, functions, schemas.

python docs/site/reference.py build/docs-source
"""

import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from pydantic import BaseModel

import autogemm
from autogemm.catalogue.ladder import rungs
from autogemm.cli import main
from autogemm.codegen import render
from autogemm.formats.recording import Recording
from autogemm.model.problem import Problem
from autogemm.space import list_families, load_family
from autogemm.space.schema import FamilyForm, SeedsForm

SCHEMAS: dict[str, type[BaseModel]] = {
    "NAME.yaml, the search space of a family": FamilyForm,
    "seeds/NAME.yaml, configs that a search tries first": SeedsForm,
    "Recordings, the times of a whole space": Recording,
}


def commands() -> Iterator[str]:
    """Yield the page of all commands: the help of each, as click prints it."""
    yield from ("# Command line", "", "Every option of every command, as `-h` shows it.", "")
    yield from _help_of("autogemm", main, None)


def _help_of(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    # Settings of the program, which its commands inherit: without them lines are 80 columns wide.
    settings = main.context_settings
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, **settings)
    yield from (f"## {context.command_path}", "", "```text", command.get_help(context), "```", "")
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _help_of(each, found, context)


def functions() -> Iterator[str]:
    """Yield the page of the public functions, from their docstrings."""
    yield from ("# Python functions", "", "[The guide](../python-api.md) shows them in use.", "")
    for name in sorted(set(autogemm.__all__) - {"__version__"}):
        yield from ("```{eval-rst}", f".. autofunction:: autogemm.{name}", "```", "")
    yield from ("## Errors", "", "```{eval-rst}", ".. automodule:: autogemm.support.errors")
    yield from ("   :members:", "   :show-inheritance:", "```", "")


def families() -> Iterator[str]:
    """Yield the page of the families that ship: parameters and constraints, from their YAML."""
    yield from ("# Families that ship", "", "[Families](../families.md) explains the keys.", "")
    for name in list_families():
        family = load_family(name)
        yield from (f"## {name}", "", family.summary, "")
        rows = [(one.name, " ".join(one.texts), one.doc) for one in family.parameters]
        yield from table(("parameter", "values", "meaning"), rows)
        rules = [(rule.require.text, rule.because) for rule in family.constraints]
        yield from table(("constraint", "reason"), rules)


def schemas() -> Iterator[str]:
    """Yield the page of JSON schemas, from the models that check the files."""
    yield from ("# JSON schemas", "", "Files are checked against these before they are used.", "")
    for title, form in SCHEMAS.items():
        text = json.dumps(form.model_json_schema(), indent=2)
        yield from (f"## {title}", "", "```json", text, "```", "")


def sources() -> Iterator[str]:
    """Yield the page of the rungs: each kernel in full, and what changed from the one before."""
    yield from ("# Every kernel of the tutorial in full", "")
    yield "Each source is what `autogemm render --rung NAME --size 4096` prints."
    yield "A difference is shown where a rung belongs to the same family as the one before it."
    before: tuple[str, list[str]] = ("", [])
    for rung in rungs():
        family = load_family(rung.family)
        config = rung.config(family.seeds[0])
        lines = render(family, config, Problem.of_size("4096")).text.splitlines()
        yield from ("", f"## {rung.name}", "", f"{rung.summary[0].upper()}{rung.summary[1:]}.", "")
        if before[0] == rung.family:
            changed = list(difflib.unified_diff(before[1], lines, lineterm="", n=2))[2:]
            yield from ("Changes from the rung before:", "", "```diff", *changed, "```", "")
        yield from ("The whole source:", "", "```cuda", *lines, "```")
        before = rung.family, lines
    yield ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table in Markdown; the first column is code."""
    yield from (f"| {' | '.join(head)} |", "|" + "---|" * len(head))
    for first, *others in rows:
        cells = [f"`{first}`", *others]
        yield (
            "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"
        )
    yield ""


def write(folder: Path) -> None:
    """Write all generated pages: those of ``folder``/reference, and the tutorial's sources."""
    (folder / "reference").mkdir(parents=True, exist_ok=True)
    (folder / "tutorial").mkdir(exist_ok=True)
    (folder / "tutorial" / "sources.md").write_text("\n".join(sources()))
    made = {"commands": commands, "python": functions, "families": families, "schemas": schemas}
    for name, page in made.items():
        (folder / "reference" / f"{name}.md").write_text("\n".join(page()))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
