"""``autogemm new-family``: a search space and a template to start from."""

import shlex
import shutil
import tempfile
from pathlib import Path

import click

from autogemm.space import starter_pair
from autogemm.support.errors import ExportError, UsageError


def run(name: str, folder: str) -> None:
    """Write the pair into a new folder. Raises UsageError if the folder exists."""
    files = starter_pair(name)
    parent = Path(folder)
    if not parent.is_dir():
        raise UsageError(f"there is no folder {parent}: make it first")
    target = parent / name
    if target.exists():
        raise UsageError(f"{target} exists already: choose another name, or remove it first")
    try:
        _write(files, parent, target)
    except OSError as error:
        raise ExportError(f"cannot write {target}: {error.strerror}") from error
    for file in files:
        click.echo(f"wrote {target / file}")
    path = shlex.quote(str(target) if target.is_absolute() else f"./{target}")
    click.echo(f"next: autogemm verify --family {path}")
    click.echo(f"then: autogemm tune --family {path} --size 1024")


def _write(files: dict[str, str], parent: Path, target: Path) -> None:
    """Write all files or none: the folder gets its name once it is complete."""
    with tempfile.TemporaryDirectory(dir=parent, prefix=f".{target.name}.") as made:
        complete = Path(made) / target.name
        complete.mkdir()
        for file, text in files.items():
            (complete / file).write_text(text)
        shutil.move(complete, target)
