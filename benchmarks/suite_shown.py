"""Shows the results of a suite: a table for people, and a picture."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from suite_shapes import MOST_FEW_ROWS, problem_of, rows_of_each

from autogemm.catalogue.palette import LIGHT, THEMES, Palette
from autogemm.model.dtypes import DType

Row = dict[str, Any]
# More rows than these are points and no bars.
MOST_BARS = 40
# Few rows, some, many: classes of M in the picture of many shapes.
CLASSES_OF_M = {"M ≤ 128": (0, 128), "128 < M ≤ 1024": (129, 1024), "M > 1024": (1025, 1 << 30)}


def line(row: Row, width: int = 14) -> str:
    """One shape of the table, its name in a column of that width."""
    word = row.get("against_baseline", "faster")
    tie = "" if word == "faster" else f" {word};"
    of_medians = row.get("ratio_of_medians", row["baseline_us"] / row["time_us"])
    return (
        f"{row['shape']:>{width}} {row['ratio']:6.3f} "
        f"{row['ratio_low']:6.3f}..{row['ratio_high']:.3f} "
        f"{of_medians:7.3f} {row['time_us']:10.2f} {row['tflops']:6.2f} "
        f"{row['baseline_us']:10.2f} {row['baseline_tflops']:6.2f} {row['error'] or 0:8.1e} "
        f"{row['baseline_error'] or 0:8.1e} {_amount(row.get('energy_mj'))} "
        f"{_amount(row.get('baseline_energy_mj'))} {row['num_trials']:>5} {row['seconds']:5.0f}  "
        f"{row['baseline']};{tie} {row['family']} "
        + " ".join(f"{name}={value}" for name, value in row["config"].items())
    )


def _amount(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.4g}':>8}"


def table(results: dict[str, Any]) -> str:
    """The rows, and their geometric mean."""
    rows = results["rows"]
    width = max([14, *(len(row["shape"]) for row in rows)])
    head = (
        f"{'MxNxK':>{width}} {'ratio':>6} {'95 %':^14} {'medians':>7} {'us':>10} {'TFLOP':>6} "
        f"{'base us':>10} {'TFLOP':>6} {'error':>8} {'base':>8} {'mJ':>8} {'base mJ':>8} "
        f"{'tried':>5} {'s':>5}  baseline; winner"
    )
    return "\n".join(
        [
            f"{results['gpu']}, {results['date']}, commit {results['commit']}, "
            f"{results['dtype']}, layout {results.get('layout', 'nn')}"
            + _epilogue(results["rows"]),
            results["versions"],
            f"command: {results['command']}",
            *([results["law"]] if results.get("law") else []),
            "ratio: the baseline's time over the winner's, median of the paired ratios of",
            "interleaved rounds; medians: ratio of the two median times; error: relative",
            "Frobenius against float64; s: search, compilation and finals of the shape",
            "",
            head,
            *(line(row, width) for row in rows),
            "",
            *_summary(results),
            "",
        ]
    )


def _epilogue(rows: list[Row]) -> str:
    """The epilogue of all rows, which the file's name cannot show as it is written."""
    texts = {row.get("epilogue", "none") for row in rows} - {"none"}
    return "".join(f", C[m][n] = {text}" for text in texts)


def _summary(results: Mapping[str, Any]) -> Iterator[str]:
    if not results["rows"]:
        yield "nothing measured"
    else:
        yield (
            f"geometric mean of {results['count']} ratios: {results['geometric_mean']:.3f}, "
            f"of ratios of medians: {results['geometric_mean_of_medians']:.3f}"
        )
        yield f"below 1 by either: {' '.join(results['below_one']) or 'none'}"
        again = results.get("again")
        if again:
            yield f"tuned for longer, not being faster at first: {' '.join(again)}"
        yield f"ties: {' '.join(results['ties']) or 'none'}"
    for row in results["rows"]:
        if row.get("sustained_ratio"):
            yield _sustained_line(row)
    if results.get("copy_gb_s"):
        yield (
            f"bytes of A, B and C, each once; a copy of gigabytes moves {results['copy_gb_s']:.0f} "
            "GB/s; small: one of as many bytes"
        )
        for row in results["rows"]:
            if rows_of_each(problem_of(row["shape"])) > MOST_FEW_ROWS:
                continue
            yield _bytes_line(row, results["copy_gb_s"], results.get("copies_us", {}))
    if results["not_measured"]:
        yield f"not measured yet: {' '.join(results['not_measured'])}"
    for shape, reason in results["failed"].items():
        yield f"failed: {shape}: {reason}"


def _sustained_line(row: Row) -> str:
    own, other = row["sustained_us"], row["sustained_baseline_us"]
    line = f"sustained {row['shape']}: {row['sustained_ratio']:.3f} x, {own:.1f} us, {other:.1f} us"
    if row.get("sustained_mj") and row.get("sustained_baseline_mj"):
        fewer = row["sustained_baseline_mj"] / row["sustained_mj"]
        line += f"; {row['sustained_mj']:.4g} mJ a GEMM, {fewer:.2f} times fewer"
    return line


def moved_bytes(shape: str, dtype: str) -> int:
    """A, B and C, each once, without what an epilogue reads; of groups the B of those with rows."""
    return problem_of(shape, dtype=DType.parse(dtype)).moved_bytes


def _bytes_line(row: Row, copy_gb_s: float, copies_us: Mapping[str, float]) -> str:
    """The rates of kernel and baseline beside that of a copy, and of one that is as small."""
    moved = moved_bytes(row["shape"], row["dtype"])
    small_us = copies_us.get(str(moved))
    small = f"; small {small_us:.2f} us, {small_us / row['time_us']:.3f}" if small_us else ""
    own, other = (moved / row[time] / 1e3 for time in ("time_us", "baseline_us"))
    return (
        f"{row['shape']:>14} {own:6.0f} GB/s, {own / copy_gb_s:.3f} of a copy; the baseline "
        f"{other:6.0f} GB/s, {other / copy_gb_s:.3f}{small}"
    )


def draw(results: dict[str, Any], folder: Path, stem: str) -> None:
    """Write the pictures of a suite: bars, or for many shapes points, light and dark."""
    import matplotlib as mpl

    mpl.use("Agg")
    if len(results["rows"]) <= MOST_BARS:
        bars(results, folder / f"{stem}.svg")
        return
    for name, palette in THEMES.items():
        points(results, folder / f"{stem}_{name}.svg", palette)


def points(results: Mapping[str, Any], path: Path, palette: Palette) -> None:
    """Ratio over floating-point operations, a point for each shape, by classes of M."""
    from matplotlib import pyplot, rc_context

    colours = {"text.color": palette.ink, "axes.edgecolor": palette.ink}
    colours |= dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), palette.ink)
    style = colours | {"font.size": 10, "svg.hashsalt": "points"}
    with rc_context(cast("Any", style)):
        figure, axes = pyplot.subplots(figsize=(7.2, 3.8), facecolor=palette.ground)
        axes.set_facecolor(palette.ground)
        marks = zip(CLASSES_OF_M.items(), "o^s", list(palette.roles())[:3], strict=True)
        for (name, (least, most)), mark, hue in marks:
            rows = [row for row in results["rows"] if least <= _sizes(row)[0] <= most]
            flops = [2 * math.prod(_sizes(row)) for row in rows]
            ratios = [row["ratio"] for row in rows]
            axes.scatter(flops, ratios, s=22, marker=mark, color=hue, label=name)
        axes.axhline(1.0, color=palette.ink, linewidth=1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_yticks([0.8, 0.9, 1.0, 1.2, 1.5], ["0.8", "0.9", "1.0", "1.2", "1.5"])
        axes.minorticks_off()
        axes.grid(axis="y", color=palette.line, linewidth=0.5)
        axes.set_xlabel("floating-point operations of the product")
        axes.set_ylabel("speed over the fastest baseline")
        axes.legend(facecolor=palette.ground, edgecolor=palette.line)
        axes.set_title(f"{results['gpu'].split(',')[0]}, {results['dtype']}", fontsize=10)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _sizes(row: Row) -> tuple[int, int, int]:
    problem = problem_of(row["shape"])
    return problem.m, problem.n, problem.k


def bars(results: dict[str, Any], path: Path) -> None:
    """A bar a shape, the best first; in blue where it is faster, in orange where it is not."""
    from matplotlib import pyplot

    rows = sorted(results["rows"], key=lambda row: -row["ratio"])
    figure, axes = pyplot.subplots(figsize=(8, 0.28 * len(rows) + 1.2))
    names, ratios = [row["shape"] for row in rows], [row["ratio"] for row in rows]
    hues = [LIGHT.own if ratio >= 1 else LIGHT.baseline for ratio in ratios]
    drawn = axes.barh(names, ratios, color=hues)
    axes.bar_label(drawn, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(1.0, color=LIGHT.ink, linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel(f"speed over {_baseline(results)}\n{results['gpu']}, {results['date']}")
    axes.margins(x=0.1)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _baseline(results: Mapping[str, Any]) -> str:
    if "settings" in results:
        return "the fastest baseline of each shape"
    # Files of before had FP32 alone, and did not say which call it was.
    dtype = results.get("dtype", "f32")
    if dtype == "f32":
        return "cuBLAS SGEMM (FP32, TF32 off)"
    return f"the fastest of cuBLAS and cuBLASLt in {dtype}"
