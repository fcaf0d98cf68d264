"""Write what docs/ladder.md shows of the whole ladder on an H200.

    python benchmarks/ladder_pages.py            exit code 1 where the page is not what was measured
    python benchmarks/ladder_pages.py --update   write the page

`benchmarks/ladder.sh` makes the results: ladder_h200.json and ceilings_h200.json. The tables stand
in docs/ladder.md between `<!-- generated: ladder -->` and `<!-- end of ladder -->`. Without results
the page says what has not been measured.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click
import figures

from autogemm.catalogue.ladder import libraries, rungs
from autogemm.support.files import write_atomically

PAGE = figures.ROOT / "docs" / "ladder.md"
LADDER, CEILINGS = "ladder_h200", "ceilings_h200"
FIRST, LAST = "<!-- generated: ladder -->", "<!-- end of ladder -->"
MISSING = (
    "The ladder has not been measured on an H200 yet, nor anywhere at 128, 256, 512, 8192 and "
    "4096 x 256 x 1024, nor have the rows of PyTorch, Triton and CUTLASS in 16 bits."
)
SIZES = ("128", "256", "512", "1024", "2048", "4096", "8192", "4096x256x1024")
LEVELS = {
    "smem_latency_cycles": "shared memory",
    "l1_latency_cycles": "L1",
    "l2_latency_cycles": "L2",
    "memory_latency_cycles": "device memory",
}

Row = dict[str, Any]


def results(name: str, folder: Path = figures.RESULTS) -> list[Row] | None:
    """Return the rows of a file of results, None if there is none."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return None
    rows: list[Row] = json.loads(path.read_text())
    return rows


def block(ladder: list[Row] | None, ceilings: list[Row] | None) -> str:
    """Return the text between the marks."""
    if ladder is None:
        return MISSING
    gpu = ladder[0]["gpu"]
    date = str(ladder[0]["measured_at"])[:10]
    link = f"benchmarks/results/{LADDER}.txt"
    parts = [
        f"Measured {date} on an {gpu} by `benchmarks/ladder.sh`: every rung and its variants, the "
        f"best kernel that `tune` found for each size, and the libraries "
        f"([times, intervals and errors](../{link})).",
        "FP32, in percent of the fastest FP32 call of cuBLAS at the same size; a dash means that "
        "the kernel does not take the size or was not timed:",
        fp32_table(ladder),
        "On tensor cores, in TFLOP/s:",
        tensor_table(ladder),
    ]
    if ceilings is not None:
        parts += [latency_words(ceilings[0]), latency_table(ceilings[0])]
    return "\n\n".join(parts)


def fp32_table(ladder: list[Row]) -> str:
    """Return percent of cuBLAS in FP32: a row for each FP32 kernel, a column for each size."""
    names = [*(one.name for one in rungs(variants=True)), "winner"]
    names += [one.name for one in libraries()]
    rows = [name for name in names if name in {row["kernel"] for row in ladder} and is_fp32(name)]
    return _table(ladder, rows, lambda row: f"{100 * row['ratio']:.1f}")


def tensor_table(ladder: list[Row]) -> str:
    """Return TFLOP/s of the libraries that use tensor cores."""
    names = [one.name for one in libraries() if not is_fp32(one.name)]
    rows = [name for name in names if name in {row["kernel"] for row in ladder}]
    return _table(ladder, rows, lambda row: f"{row['tflops']:.1f}")


def is_fp32(name: str) -> bool:
    """Whether a kernel of the ladder multiplies FP32 numbers as they are."""
    return name not in {one.name for one in libraries()} or name.endswith("_f32")


def _table(ladder: list[Row], names: list[str], cell: Any) -> str:
    timed = {(row["kernel"], row["size"]): row for row in ladder if row["status"] == "ok"}
    head = "| kernel | " + " | ".join(SIZES).replace("x", " x ") + " |"
    lines = [head, "|---|" + "---:|" * len(SIZES)]
    for name in names:
        found = (timed.get((name, size)) for size in SIZES)
        cells = ("-" if row is None else cell(row) for row in found)
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def latency_words(ceilings: Row) -> str:
    """Return the sentence above the latencies."""
    clock = ceilings["measured_sm_clock_mhz"]
    return (
        f"`autogemm gpus --measure` on the same GPU, at {clock} MHz: the "
        "latency of one load whose address is the result of the load before it."
    )


def latency_table(ceilings: Row) -> str:
    """Return a row for each level of memory."""
    lines = ["| load from | clock cycles | ns |", "|---|---:|---:|"]
    for field, level in LEVELS.items():
        cycles = ceilings[field]
        lines.append(
            f"| {level} | {cycles:.0f} | {1e3 * cycles / ceilings['measured_sm_clock_mhz']:.0f} |"
        )
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with its block as the results have it."""
    before, found, rest = text.partition(FIRST)
    _, ended, after = rest.partition(LAST)
    if not (found and ended):
        raise figures.FigureError(f"no block {FIRST} ... {LAST}")
    return f"{before}{FIRST}\n{block(results(LADDER), results(CEILINGS))}\n{LAST}{after}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--update", is_flag=True, help="Write the page.")
def main(update: bool) -> None:
    """Compare docs/ladder.md with the committed results."""
    text = PAGE.read_text()
    new = page(text)
    if new != text:
        click.echo(f"docs/ladder.md: {'written' if update else 'stale'}")
        if update:
            write_atomically(PAGE, new.encode())
    sys.exit(1 if new != text and not update else 0)


if __name__ == "__main__":
    main()
