"""Files that gather the rows of a subject's tables."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import gather


@pytest.mark.parametrize(("subject", "gpu"), gather.subjects())
def test_a_subjects_rows_are_those_of_its_tables(subject: str, gpu: str) -> None:
    assert gather.file_of(subject, gpu).read_text() == gather.gathered(subject, gpu), (
        "run benchmarks/gather.py --update"
    )


def test_a_row_is_that_of_its_table() -> None:
    rows = json.loads(gather.gathered("fp8", "h200"))["rows"]
    assert {row["table"] for row in rows} >= {"suite_e4m3_nt_h200.json"}
    for row in rows:
        table = json.loads((gather.RESULTS / row["table"]).read_text())
        found = [one for one in table["rows"] if one["shape"] == row["shape"]]
        assert [one["ratio"] for one in found] == [row["ratio"]]
        assert row["baseline"] and row["error"] is not None and row["baseline_error"] is not None


def test_first_tries_and_gathered_files_are_no_tables() -> None:
    assert {"fp8", "grouped"} <= {subject for subject, gpu in gather.subjects() if gpu == "h100"}
    for subject, gpu in gather.subjects():
        names = [path.name for path in gather.tables(subject, gpu)]
        assert names and gather.file_of(subject, gpu).name not in names
        assert not any("_first_" in name for name in names)
