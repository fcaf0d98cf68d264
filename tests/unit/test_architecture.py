"""House rules that a machine can check: who may import whom, how the command line starts."""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from click.testing import CliRunner

import autogemm
from autogemm.cli import COMMANDS, main

PACKAGE = Path(autogemm.__file__).parent
ROOT = PACKAGE.parent
COMMAND_PAGE = ROOT / "docs" / "commands.md"

# Rooms and their sub-rooms in call order (docs/architecture.md). Imports point to a room further
# up in this list; rooms of one line do not know each other.
ROOMS = (
    "support",
    "model.hardware",
    "model",
    "model.accuracy",
    "model.results",
    "catalogue",
    "space.expressions",
    "space",
    "store.tables",
    "store.connection",
    "store.queries",
    "store.transfer",
    "reference",
    "codegen compile emulator formats search store",
    "targets",
    "codegen.export",
    "targets.cuda.tools targets.recorded",
    "targets.cuda",
    "targets.cuda.worker.gpu",
    "targets.cuda.worker.problem",
    "targets.cuda.worker.libraries",
    "targets.cuda.worker",
    "verify",
    "tuning.task",
    "tuning.loop",
    "tuning",
    "bench.kernels bench.strategies cluster dispatch exchange.jsonl",
    "exchange",
    "insight.analysis insight.explain insight.profiling",
    "insight.plots insight.report",
    "runtime",
    "programs",
    "programs.site",
    "cli",
    "cli.insight.run cli.kernels.run",
    "cli.db.run",
    "cli.bench cli.bench_search cli.cache cli.db cli.export "
    "cli.insight cli.kernels cli.record cli.tune",
    # The package itself: names for what others do; and ``python -m autogemm``.
    "autogemm",
)
LEVELS = {room: level for level, line in enumerate(ROOMS) for room in line.split()}
# Rooms that only hold others.
HALLS = {"bench", "insight"}
# Rooms of values and helpers: each of their modules is a face of its own.
OPEN_ROOMS = {
    *("support", "model", "model.accuracy", "model.hardware", "model.results", "catalogue")
}
MAX_MODULES = 17

# Foreign library -> the rooms that may import it. Jinja has two uses: CUDA, of
# which support holds the one environment and codegen the rendering; report emits
# HTML, in which everything is escaped.
OWNERS = {
    "cupy": "targets.cuda.worker",
    "cupy_backends": "targets.cuda.worker",
    "pynvml": "targets.cuda.worker",
    "torch": "targets.cuda.worker.libraries runtime programs",
    "triton": "targets.cuda.worker.libraries",
    "cuda": "compile",
    "sqlalchemy": "store",
    "alembic": "store",
    "optuna": "search",
    "scipy": "search",
    "jinja2": "support codegen insight.report",
    "markupsafe": "insight.report",
    "pygments": "insight.report",
    "kernel_tuner": "bench.strategies",
    "constraint": "bench.strategies",
    "matplotlib": "insight.plots",
    "dask": "cluster",
    "distributed": "cluster",
    "click": "cli",
    "rich": "cli",
    "tqdm": "runtime",
}


def sources() -> dict[str, str]:
    """Source of each module by its dotted name; a package has the name of its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path.read_text()
    return found


SOURCES = sources()
PACKAGES = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}


def room_of(module: str) -> str:
    """``autogemm.store.queries.best`` is in the room ``store.queries``."""
    room = module if module in PACKAGES else module.rpartition(".")[0]
    return room.removeprefix("autogemm.")


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of every import, also inside functions and for type checkers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            assert node.module is not None
            yield from ((node.module, alias.name) for alias in node.names)


def exported(package: str) -> set[str]:
    """The names in ``__all__`` of a package."""
    for node in ast.parse(SOURCES.get(package, "")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def module_of(imported: str, name: str) -> str:
    """The module that ``from imported import name`` reads: a submodule, or ``imported`` itself."""
    if name and f"{imported}.{name}" in SOURCES and name not in exported(imported):
        return f"{imported}.{name}"
    return imported


def violations(module: str, source: str) -> list[str]:
    """The imports of a module that break a rule, in words."""
    found = []
    room = room_of(module)
    for imported, name in imports_of(source):
        top = imported.partition(".")[0]
        if top == "autogemm":
            found += _own(module, room, module_of(imported, name))
        elif top in OWNERS and not any(
            f"{room}.".startswith(f"{owner}.") for owner in OWNERS[top].split()
        ):
            found.append(f"{module} imports {imported}, which belongs to {OWNERS[top]}")
    return found


def _own(module: str, room: str, target: str) -> Iterator[str]:
    other = room_of(target)
    if other == room:
        return
    if missing := {other, room} - LEVELS.keys():
        yield f"{module}: no line of ROOMS names {' or '.join(sorted(missing))}"
        return
    if LEVELS[other] >= LEVELS[room]:
        yield f"{module} (level {LEVELS[room]}) imports {target} (level {LEVELS[other]})"
    is_same_house = other.partition(".")[0] == room.partition(".")[0]
    if not is_same_house and other not in OPEN_ROOMS and target not in PACKAGES:
        yield f"{module} imports {target} past the face of autogemm.{other}"


def test_imports_point_down_and_go_by_faces_and_libraries_have_one_owner() -> None:
    assert [line for module in SOURCES for line in violations(module, SOURCES[module])] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("autogemm.store.store", "from autogemm.search import Search"),
        ("autogemm.space.legal", "import autogemm.codegen"),
        ("autogemm.support.errors", "from autogemm import store"),
        ("autogemm.model.results.outcome", "from autogemm.catalogue.gpus import find_device"),
        ("autogemm.store.tables.models", "from autogemm.store.queries.best import best"),
        ("autogemm.codegen.rendering", "def late():\n    from autogemm.store import Store"),
        ("autogemm.tuning.tuner", "from autogemm.cli import main"),
        ("autogemm.tuning.tuner", "from autogemm.search.study import Search"),
        ("autogemm.cli.tune.run", "from autogemm.store.tables import records"),
        ("autogemm.tuning.tuner", "import optuna.samplers"),
        ("autogemm.targets.recorded.target", "import cupy"),
        ("autogemm.targets.cuda.target", "def late():\n    from cupy import cuda"),
        ("autogemm.insight.report", "from rich.table import Table"),
        ("autogemm.insight.plots.search", "import jinja2"),
    ],
)
def test_a_planted_violation_is_found(module: str, source: str) -> None:
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("autogemm.cli.tune.run", "import click\nfrom autogemm.tuning import tune"),
        ("autogemm.targets.cuda.worker.libraries.names", "import cupy"),
        ("autogemm.model.kernel", "from autogemm.model.config import Config\nimport numpy"),
        ("autogemm.store.store", "from sqlalchemy.orm import Session"),
        ("autogemm.store.store", "from autogemm.store.queries import best"),
        ("autogemm.insight.report.page", "from jinja2 import Environment"),
    ],
)
def test_what_is_allowed_is_not_reported(module: str, source: str) -> None:
    assert violations(module, source) == []


def import_cycle(modules: Mapping[str, str]) -> list[str]:
    """A cycle of modules that import each other, at the top or inside functions; empty if none."""
    graph = {
        module: {module_of(*found) for found in imports_of(source)} - {module}
        for module, source in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_not_even_inside_functions() -> None:
    assert import_cycle(SOURCES) == []


def test_a_planted_cycle_is_found() -> None:
    late = "def late():\n    from autogemm.cli.output import print_rows\n"
    names = "autogemm.cli.output", "autogemm.support.naming"
    assert import_cycle(SOURCES | {names[1]: SOURCES[names[1]] + late}) == []
    back = "\nimport autogemm.support.naming\n"
    planted = {names[0]: SOURCES[names[0]] + back, names[1]: SOURCES[names[1]] + late}
    assert set(import_cycle(SOURCES | planted)) == set(names)


def test_every_room_has_its_level_and_no_room_is_crowded() -> None:
    rooms = {room_of(package) for package in PACKAGES}
    assert rooms - HALLS == set(LEVELS)
    crowded = {
        room: count
        for room in rooms
        if (count := sum(room_of(module) == room for module in SOURCES)) > MAX_MODULES
    }
    assert crowded == {}
    assert {module for module in SOURCES if room_of(module) == "autogemm"} == {
        "autogemm",
        "autogemm.__main__",
    }


def test_faces_are_sorted_and_complete() -> None:
    for package in PACKAGES:
        body = ast.parse(SOURCES[package]).body
        for node in body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = ast.literal_eval(node.value)
                assert len(set(names)) == len(names), package


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples_and_stands_in_the_docs(name: str) -> None:
    result = CliRunner().invoke(main, [name, "-h"])
    assert result.exit_code == 0, result.output
    assert f"  autogemm {name}" in result.output.partition("Examples:")[2]
    assert f"| `autogemm {name}" in COMMAND_PAGE.read_text()


def late_imports(source: str) -> list[str]:
    """Modules that a module imports inside its functions."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found = [one for function in functions for one in imports_of(ast.unparse(function))]
    return sorted(".".join(filter(None, one)) if one[1] == "run" else one[0] for one in found)


def is_work(module: str) -> bool:
    """Whether a module does the work of a command: ``run``, or a module of a room ``run``."""
    return "run" in module.split(".")


def test_commands_import_their_work_inside_functions_and_nothing_else() -> None:
    late = {
        module: late_imports(source)
        for module, source in SOURCES.items()
        if module.startswith("autogemm.cli.") and late_imports(source)
    }
    # The exception: tables are rarely anything but ASCII.
    assert late.pop("autogemm.cli.table") == ["rich.cells"]
    # Nor is a log asked for, or a file of defaults there, each time.
    assert set(late.pop("autogemm.cli.log")) == {"logging"}
    assert set(late.pop("autogemm.cli.defaults")) == {"platformdirs", "tomllib"}
    work = {one for imported in late.values() for one in imported}
    assert len(work) >= len(COMMANDS), "a command does its work in a module of its own"
    assert {module for module in late if is_work(module)} == set()
    assert {one for one in work if not is_work(one)} == set()


def test_a_late_import_is_found() -> None:
    source = "def late():\n    from autogemm.cli.tune.run import run\n    import numpy\n"
    assert late_imports(source) == ["autogemm.cli.tune.run.run", "numpy"]
    assert [is_work(one) for one in late_imports(source)] == [True, False]


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


def test_the_tuner_imports_no_scipy() -> None:
    """Only the sampler that needs it does, when it is made: a quarter of the time of the import."""
    program = "import sys, autogemm.tuning, autogemm.cluster\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert "scipy" not in loaded
    assert {"autogemm.search.samplers", "optuna"} <= loaded
