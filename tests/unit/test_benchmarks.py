"""Scripts that are only run on a GPU, and examples in the docs, know what this package is made of.

Whatever they import from it is there today.
"""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")), ROOT / "db/README.md"]


def require_imports(tree: ast.AST) -> None:
    """Import what is imported; without PyTorch, an extra, as much of it as needs none."""
    try:
        _require_imports(tree)
    except ModuleNotFoundError as error:
        assert error.name == "torch"
        pytest.skip("PyTorch is not installed")


def _require_imports(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "autogemm":
                    importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("autogemm"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_script_imports_is_there(path: Path) -> None:
    require_imports(ast.parse(path.read_text()))


def examples() -> list[tuple[str, str]]:
    """The imports that the docs show, each with its page."""
    found = []
    for page in PAGES:
        for line in page.read_text().splitlines():
            if re.match(r"\s*(from autogemm[\w.]* import \w|import autogemm)", line):
                found.append((str(page.relative_to(ROOT)), line.strip()))
    return found


def test_what_the_docs_import_is_there() -> None:
    shown = examples()
    assert len({page for page, _ in shown}) >= 3
    for page, line in shown:
        try:
            require_imports(ast.parse(line))
        except (ImportError, AssertionError, SyntaxError) as error:
            raise AssertionError(f"{page}: {line}: {error}") from error
