"""House rules that a machine can check: who may import whom, how the command line starts."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import autogemm
from autogemm.cli import COMMANDS, main

PACKAGE = Path(autogemm.__file__).parent
ROOT = PACKAGE.parent
README = ROOT / "README.md"

# docs/architecture.md draws them. What is not named here is a value: level 1.
LEVELS = {
    "space": 2,
    "codegen": 3,
    "compile": 3,
    "targets": 3,
    "store": 3,
    "search": 3,
    "tuning": 4,
    "exchange": 4,
    "explain": 4,
    "strategies": 4,
    "contest": 4,
    "profiling": 4,
    "analysis": 4,
    "dispatch": 4,
    "plots": 5,
    "report": 5,
    "runtime": 5,
    "cli": 6,
    # The package itself: a name for what others do.
    "": 6,
    "__main__": 7,
}

# Foreign library -> the one part of the package that imports it. Jinja has two: codegen emits CUDA,
# report emits HTML, in which everything is escaped.
OWNERS = {
    "cupy": "targets.cuda",
    "cupy_backends": "targets.cuda",
    "pynvml": "targets.cuda",
    "torch": "targets.cuda runtime",
    "triton": "targets.cuda",
    "cuda": "compile",
    "sqlalchemy": "store",
    "alembic": "store",
    "optuna": "search",
    "scipy": "search",
    "jinja2": "codegen report",
    "markupsafe": "report",
    "plotly": "report",
    "pygments": "report",
    "kernel_tuner": "strategies",
    "constraint": "strategies",
    "matplotlib": "plots",
    "click": "cli",
    "rich": "cli",
}


def part_of(module: str) -> str:
    """``autogemm.store.queries.best`` is of the part ``store``, ``autogemm.support.errors`` of ``errors``."""
    return module.split(".")[1] if "." in module else ""


def imports_of(source: str) -> Iterator[str]:
    """Every module that a source imports, also inside functions and for type checkers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            assert node.module is not None
            if node.module == "autogemm":
                yield from (f"autogemm.{alias.name}" for alias in node.names)
            else:
                yield node.module


def violations(module: str, source: str) -> list[str]:
    """What a module imports and must not, in words."""
    found = []
    part = part_of(module)
    level = LEVELS.get(part, 1)
    for imported in imports_of(source):
        if imported.partition(".")[0] == "autogemm":
            other = part_of(imported)
            other_level = LEVELS.get(other, 1)
            if other != part and (other_level > level or (level == other_level and level > 1)):
                found.append(f"{module} (level {level}) imports {imported} (level {other_level})")
        else:
            owners = OWNERS.get(imported.partition(".")[0], "").split()
            if owners and not any(f"{module}.".startswith(f"autogemm.{o}.") for o in owners):
                found.append(
                    f"{module} imports {imported}, which belongs to {' and '.join(owners)}"
                )
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def test_imports_point_down_and_foreign_libraries_have_one_owner() -> None:
    found = [line for module, path in modules() for line in violations(module, path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("autogemm.store.queries.best", "from autogemm.search import Search"),
        ("autogemm.space.legal", "import autogemm.codegen.rendering"),
        ("autogemm.support.errors", "from autogemm import store"),
        ("autogemm.codegen.export.standalone", "def late():\n    from autogemm.store import Store"),
        ("autogemm.tuning.tuner", "from autogemm.cli.output import print_rows"),
        ("autogemm.tuning.tuner", "import optuna.samplers"),
        ("autogemm.targets.recorded.target", "import cupy"),
        ("autogemm.targets", "from cupy import cuda"),
        ("autogemm.insight.report", "from rich.table import Table"),
        ("autogemm.insight.plots.search", "import jinja2"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("autogemm.cli.tune.command", "import click\nfrom autogemm.tuning import tune"),
        (
            "autogemm.targets.cuda.worker.gpu.gpu",
            "import cupy\nfrom autogemm.targets import Target",
        ),
        ("autogemm.model.kernel", "from autogemm.model.config import Config\nimport numpy"),
        ("autogemm.store", "from sqlalchemy.orm import Session"),
        ("autogemm.insight.report.page", "from jinja2 import Environment"),
    ],
)
def test_what_is_allowed_is_not_reported(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_every_part_of_the_package_has_its_level() -> None:
    parts = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert parts == LEVELS.keys() - {"__main__", ""}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_and_stands_in_the_readme(name: str) -> None:
    result = CliRunner().invoke(main, [name, "-h"])
    assert result.exit_code == 0, result.output
    assert f"  autogemm {name}" in result.output.partition("Examples:")[2]
    assert f"| `autogemm {name}" in README.read_text()


# Half a second and more to import, together; a help page needs none of them.
HEAVY = {"numpy", "optuna", "sqlalchemy", "alembic", "scipy", "cupy", "jinja2"}
HEAVY |= {"pydantic", "yaml", "cuda.bindings"}


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from autogemm.cli import COMMANDS, main\n"
        "for arguments in ([], *([name] for name in COMMANDS)):\n"
        "    assert CliRunner().invoke(main, [*arguments, '-h']).exit_code == 0, arguments\n"
        # Which is no help, and opens nothing either.
        "assert CliRunner().invoke(main, ['db', 'path']).exit_code == 0\n"
        "print(*sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(result.stdout.split()) & HEAVY == set()
