"""Gather the rows of all tables of one subject on one GPU into one file, as others read them.

    python benchmarks/gather.py             says which files are not those of the tables
    python benchmarks/gather.py --update    writes them

Each row of fp8_h200.json and its like stands in a table of benchmarks/results, which it names; the
table has the command, the configs and the times.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from autogemm.support.files import write_atomically

RESULTS = Path(__file__).resolve().parent / "results"
# How the names of a subject's tables begin.
SUBJECTS = {
    "fp8": ("suite_e4m3", "block_scales", "decode_e4m3", "deepgemm_race_block_scales_all"),
    "int8": ("suite_i8",),
    "cube_f16": ("cube_f16",),
    "layers_bf16": ("layers_bf16",),
    "any_size_bf16": ("any_size_bf16",),
    "tf32_layouts": ("tf32_layouts_",),
    "epilogues": ("epilogue_",),
    "batched": ("batched_",),
    "grouped": ("grouped_", "moe_decode", "deepgemm_race_grouped"),
}
GPUS = ("h100", "h200")
FIELDS = (
    *("shape", "layout", "dtype", "epilogue", "ratio", "ratio_low", "ratio_high"),
    *("ratio_of_medians", "baseline", "error", "baseline_error", "l2"),
)
# What races name after their baseline.
ERRORS_OF_OTHERS = ("DeepGEMM_error", "torch_error")


def subjects() -> list[tuple[str, str]]:
    """Return each subject and GPU of which there are tables."""
    return [(subject, gpu) for subject in SUBJECTS for gpu in GPUS if tables(subject, gpu)]


def gathered(subject: str, gpu: str) -> str:
    """Return the file of a subject on a GPU."""
    rows = [row for path in tables(subject, gpu) for row in rows_of(path)]
    return json.dumps({"subject": subject, "rows": rows}, indent=1) + "\n"


def tables(subject: str, gpu: str) -> list[Path]:
    """Return the subject's tables; those of a first try have newer ones beside them."""
    gathered_files = {file_of(one, gpu) for one in SUBJECTS}
    return [
        path
        for path in sorted(RESULTS.glob(f"*_{gpu}.json"))
        if path.name.startswith(SUBJECTS[subject])
        and path not in gathered_files
        and "_first_" not in path.name
    ]


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a table's rows with the fields that all have; what a table does not say is null."""
    table = json.loads(path.read_text())
    for row in table["rows"]:
        known = {key: row[key] for key in ERRORS_OF_OTHERS if key in row}
        of_other = {"baseline_error": next(iter(known.values()), None), "epilogue": None}
        every = {"date": table["date"], "commit": table["commit"], "dtype": table.get("dtype")}
        whole = of_other | every | row
        yield {
            **{field: whole.get(field) for field in FIELDS},
            **{"table": path.name, "gpu": table["gpu"]},
            **{field: whole[field] for field in every if field != "dtype"},
        }


def file_of(subject: str, gpu: str) -> Path:
    """Return where a subject's rows are kept."""
    return RESULTS / f"{subject}_{gpu}.json"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--update", is_flag=True, help="Write the files.")
def main(update: bool) -> None:
    """Gather the rows of all tables of one subject into one file."""
    stale = 0
    for subject, gpu in subjects():
        path, text = file_of(subject, gpu), gathered(subject, gpu)
        if path.exists() and path.read_text() == text:
            continue
        if update:
            write_atomically(path, text.encode())
        stale += 1
        click.echo(f"{path.name}: {'written' if update else 'not that of the tables: --update'}")
    if stale and not update:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
