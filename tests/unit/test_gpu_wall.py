"""The wall around the GPU: only the worker's room reaches CuPy, and nobody outside imports it.

A candidate may hang, crash or poison a CUDA context. So the parent makes none: it names the
worker's modules as text, and a process of their own imports them.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
from test_architecture import SOURCES, imports_of, module_of

from autogemm.support.child_process import child_environment

WORKER = "autogemm.targets.cuda.worker"
CUPY = {"cupy", "cupy_backends"}


def is_in_worker(module: str) -> bool:
    return module == WORKER or module.startswith(f"{WORKER}.")


@cache
def imported_by(source: str) -> set[str]:
    """The modules that a source imports, in whichever way."""
    return {module_of(*one) for one in imports_of(source)} | set(names_called(source))


def names_called(source: str) -> Iterator[str]:
    """Modules that a source imports by ``import_module`` or ``__import__`` of a text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args:
            function = ast.unparse(node.func).rpartition(".")[2]
            first = node.args[0]
            if function in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                yield str(first.value)


def breaches(modules: Mapping[str, str]) -> list[str]:
    """Imports of CuPy or of the worker's room from outside of it, in words."""
    found = []
    for module, source in modules.items():
        if is_in_worker(module):
            continue
        found += [
            f"{module} imports {one}"
            for one in sorted(imported_by(source))
            if one.partition(".")[0] in CUPY or is_in_worker(one)
        ]
    return found


def test_nobody_outside_the_worker_imports_it_or_cupy() -> None:
    assert breaches(SOURCES) == []


def test_the_worker_does_reach_cupy() -> None:
    """Else the test above would pass because it looks in the wrong place."""
    inside = {module for module in SOURCES if is_in_worker(module)}
    reaching = {
        module
        for module in inside
        for imported, _ in imports_of(SOURCES[module])
        if imported.partition(".")[0] in CUPY
    }
    assert f"{WORKER}.gpu.gpu" in reaching
    assert len(inside) > 15


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("autogemm.targets.cuda.target", "import cupy"),
        ("autogemm.targets.cuda.devices", "def late():\n    from cupy.cuda import runtime"),
        ("autogemm.runtime.driver", "from cupy_backends.cuda import api"),
        ("autogemm.targets.cuda.devices", "from autogemm.targets.cuda.worker import probe"),
        ("autogemm.targets.cuda", "from autogemm.targets.cuda import worker"),
        (
            "autogemm.cli.kernels.run.gpus",
            "if TYPE_CHECKING:\n    from autogemm.targets.cuda.worker.gpu import Gpu",
        ),
        ("autogemm.tuning.tuner", "import autogemm.targets.cuda.worker.backend as backend"),
        ("autogemm.bench.kernels", "importlib.import_module('autogemm.targets.cuda.worker.gpu')"),
    ],
)
def test_a_planted_breach_is_found(module: str, line: str) -> None:
    planted = SOURCES | {module: f"{SOURCES[module]}\n{line}\n"}
    assert len(breaches(planted)) == 1


def test_a_module_that_is_named_as_text_is_no_breach() -> None:
    line = '\nCHILD = "autogemm.targets.cuda.worker.process"\n'
    module = "autogemm.targets.cuda.target"
    assert breaches({module: SOURCES[module] + line}) == []


def test_no_module_outside_loads_the_worker_when_it_is_imported() -> None:
    """The same by running it: every module outside the wall imported in one process."""
    outside = [module for module in SOURCES if not is_in_worker(module)]
    outside.remove("autogemm.__main__")
    program = (
        "import importlib, sys\n"
        f"for name in {outside!r}:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        assert error.name == 'torch'\n"
        f"print([name for name in sys.modules if name.startswith({WORKER!r})])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(),
    )
    assert done.stdout.strip() == "[]"
