"""Mistyped commands: one line, exit code 2, and the near name where there is one."""

import pytest
from click.testing import CliRunner

from autogemm.cli import main

MISTYPED = [
    ("tuen", "'tune'"),
    ("--verison", "--version"),
    ("db bset", "'best'"),
    ("tune --siez 1024", "'--size'"),
    ("tune --fix bm=128", "'BM'"),
    ("tune --sampler surogate", "'surrogate'"),
    ("tune --preset transfomer", "'transformer'"),
    ("render --rung tield", "'tiled'"),
    ("render --gpu h10", "'h100'"),
    ("space sgemm_sim", "'sgemm_simt'"),
    ("bench-search --strategies surogate", "'surrogate'"),
    ("db list --status okay", "'ok'"),
    ("db compare run:1", "Missing argument 'B'"),
    ("render --rung nonsense", "'nonsense'; the ladder has"),
    ("tune --budget soon", "'soon' is not a time"),
    ("tune --problems nowhere.txt", "cannot be read: No such file or directory"),
]


@pytest.mark.parametrize(("words", "near"), MISTYPED, ids=[words for words, _ in MISTYPED])
def test_one_line_that_names_what_was_meant(words: str, near: str) -> None:
    result = CliRunner().invoke(main, words.split(), prog_name="autogemm")
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert near in line


def test_an_error_of_the_command_line_says_where_help_is() -> None:
    result = CliRunner().invoke(main, ["db", "list", "--limit", "0"], prog_name="autogemm")
    assert result.stderr.endswith("(see autogemm db list -h)\n")


@pytest.mark.parametrize("group", [[], ["db"]])
def test_without_a_command_there_is_the_help(group: list[str]) -> None:
    result = CliRunner().invoke(main, group)
    assert "Commands:" in result.output
    assert "Error" not in result.output


@pytest.mark.parametrize("text", ["NT", "nT"])
def test_layouts_and_sizes_in_capitals(text: str) -> None:
    words = ["render", "--layout", text, "--size", "64X128X256", "--gpu", "h100"]
    result = CliRunner().invoke(main, [*words, "--rung", "naive"])
    assert result.exit_code == 0, result.output
    assert "Layout nt" in result.stdout
