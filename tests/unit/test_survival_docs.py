"""Every fault that docs/survival.md lists names the tests that inject it, and these exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "survival.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows() -> list[str]:
    """The rows of all tables of faults."""
    found = []
    for table in re.findall(r"^\| fault .*\n\|[-|]*\n((?:\|.*\n)+)", PAGE, flags=re.MULTILINE):
        found += table.splitlines()
    return found


@cache
def names_in(module: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / module).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_no_table_is_overlooked() -> None:
    assert len(rows()) >= 46


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:30])
def test_a_fault_names_tests_that_exist(row: str) -> None:
    named = NAMED.findall(re.split(r"(?<!\\)\|", row)[-2])
    assert named, "the last column names no test"
    for module, name in named:
        assert name in names_in(module), f"{module} has no {name}"
