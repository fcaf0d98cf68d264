"""Scripts that are only run on a GPU know what this package is made of today."""

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_script_imports_is_there(path: Path) -> None:
    imports = [
        (node.module, name.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autogemm")
        for name in node.names
    ]
    for module, name in imports:
        assert hasattr(importlib.import_module(str(module)), name), f"{module} has no {name}"
