"""Write what the README shows of the committed results: its chart, its table and its session.

    python benchmarks/showcase.py            exit code 1 where a file is not what the results say
    python benchmarks/showcase.py --update   write the files

The chart is drawn twice, for light and for dark pages: docs/img/overview_light.svg and _dark.svg.
The table and the session stand in README.md between `<!-- generated: NAME -->` and
`<!-- end of NAME -->`. A suite whose kernels are not those that the templates emit today is said to
be older, in the chart, in the table and in the markers that benchmarks/figures.py reads.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import figures

from autogemm.support.files import write_atomically

README = figures.ROOT / "README.md"
PICTURES = figures.ROOT / "docs" / "img"
SESSION = "main_job_h200.txt"
# The lines of the session that the README shows, each by how it begins.
SHOWN = (
    "$ autogemm tune",
    "131 trials",
    "finals:",
    "#  config",
    "1  BM=128",
    "-  cuBLAS SGEMM",
    "$ autogemm export",
    "$ nvcc",
    "verify, random reals",
    "ratio ",
)


@dataclass(frozen=True)
class Suite:
    """A row of the table: element types and shapes, and its results on each GPU."""

    label: str
    h200: str
    h100: str = ""


SUITES = (
    Suite("FP32, shapes drawn at random", "unseen_h200"),
    Suite("FP32", "suite_f32_nn_h200"),
    Suite("FP32, no seeds", "suite_f32_nn_without_seeds_h200"),
    Suite("FP32, operands not in L2", "suite_f32_nn_rotate_h200"),
    Suite("FP32, B transposed (nt)", "suite_f32_nt_h200"),
    Suite("FP32, A transposed (tn)", "suite_f32_tn_h200"),
    Suite("FP32, both transposed (tt)", "suite_f32_tt_h200"),
    Suite("FP32 from tensor cores", "suite_emulated_nn_h200", "suite_emulated_h100"),
    Suite("TF32", "suite_tf32_h200", "suite_tf32_h100"),
    Suite("BF16", "suite_bf16_h200", "suite_bf16_h100"),
    Suite("BF16, sizes that 128 does not divide", "any_size_bf16_nn_h200", "any_size_bf16_nn_h100"),
    Suite("BF16, layers of language models", "layers_bf16_rotate_h200"),
    Suite("FP16, 64 to 16384 in each dimension", "cube_f16_nn_h200", "cube_f16_nn_h100"),
    Suite("8-bit floats (E4M3)", "suite_e4m3_nt_h200"),
    Suite(
        "8-bit floats, few rows, block scales",
        "block_scales_decode_e4m3_nt_rotate_h200",
        "block_scales_decode_e4m3_nt_rotate_h100",
    ),
    Suite("8-bit integers", "suite_i8_nt_h200", "suite_i8_nt_h100"),
    Suite("FP32, batches of small squares", "batched_f32_nn_h200", "batched_f32_nn_h100"),
    Suite("BF16, batches of small squares", "batched_bf16_nn_h200", "batched_bf16_nn_h100"),
    Suite("BF16, experts (groups of rows)", "grouped_bf16_nt_h200", "grouped_bf16_nt_h100"),
    Suite("BF16, SwiGLU in the kernel", "epilogue_swiglu_bf16_nt_h200"),
)
# The rows of the chart.
CHARTED = (
    ("FP32", "suite_f32_nn_h200"),
    ("TF32", "tf32_layouts_nn_h200"),
    ("BF16", "suite_bf16_h200"),
    ("FP16", "suite_f16_h200"),
)


def table() -> str:
    """Return the README's table: one geometric mean in each cell."""
    head = ["| kernels | shapes | H200 | H100 |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *map(_row, SUITES)])


def _row(suite: Suite) -> str:
    counts = [len(figures.rows_of(f"{name}.json")) for name in (suite.h200, suite.h100) if name]
    shapes = ", ".join(str(count) for count in dict.fromkeys(counts))
    return f"| {suite.label} | {shapes} | {_cell(suite.h200)} | {_cell(suite.h100)} |"


def _cell(name: str) -> str:
    if not name:
        return ""
    mean = figures.rounded(figures.value_of(f"{name}.json geometric_mean"), "1.00")
    is_older = not figures.is_of_today(f"{name}.json")
    older, star = (", older", "\\*") if is_older else ("", "")
    link = f"[{mean}](benchmarks/results/{name}.txt){star}"
    return f"{link} <!-- figure: {mean} = {name}.json geometric_mean{older} -->"


def session() -> str:
    """Return the lines of the session that the README shows, as a code block."""
    lines = (figures.RESULTS / SESSION).read_text().splitlines()
    found = (next(line for line in lines if line.startswith(start)) for start in SHOWN)
    return "\n".join(f"    {line.rstrip()}" for line in found)


@dataclass(frozen=True)
class Scheme:
    """Colours for a page, each of a contrast of 3:1 or more with its background."""

    name: str
    background: str
    ink: str
    faint: str
    today: str
    older: str


LIGHT = Scheme("light", "#ffffff", "#1f2328", "#8c959f", "#0b5cad", "#b35900")
DARK = Scheme("dark", "#0d1117", "#e6edf3", "#6e7681", "#58a6ff", "#f0883e")

# Pixels.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, ROW = 760, 316, 190, 70, 46, 48
# The axis: speed over cuBLAS, logarithmic.
LEAST, MOST, TICKS = 0.95, 3.4, (1.25, 1.5, 2.0, 3.0)
FONTS = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"


def x_of(ratio: float) -> float:
    """Return the place of a ratio on the axis, in pixels."""
    share = math.log(ratio / LEAST) / math.log(MOST / LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def chart(scheme: Scheme) -> str:
    """Return the chart as SVG: a dot for each shape, a bar for each geometric mean."""
    rows = [_chart_row(scheme, i, *row) for i, row in enumerate(CHARTED)]
    bottom = TOP + ROW * len(CHARTED)
    one = x_of(1.0)
    ink = f'fill="{scheme.ink}"'
    centred = f'{ink} text-anchor="middle"'
    grid = f'stroke="{scheme.faint}" stroke-opacity="0.35"'
    title = "Times as fast as the fastest call of cuBLAS, H200"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" font-family="{FONTS}" font-size="13">',
            f"<title>{alt_text()}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{scheme.background}"/>',
            _text(LEFT, 20, title, f'{ink} font-size="15"'),
            *(_line(x_of(tick), (TOP, bottom), grid) for tick in TICKS),
            _line(one, (TOP - 8, bottom), f'stroke="{scheme.ink}" stroke-width="2"'),
            _text(one + 12, bottom + 18, "cuBLAS = 1.0", f'{ink} text-anchor="end"'),
            *(_text(x_of(tick), bottom + 18, f"{tick:g}", centred) for tick in TICKS),
            *rows,
            _key(scheme, bottom + 44),
            "</svg>",
            "",
        ]
    )


def _chart_row(scheme: Scheme, index: int, label: str, name: str) -> str:
    y = TOP + ROW * (index + 0.5)
    ratios = [row["ratio"] for row in figures.rows_of(f"{name}.json")]
    mean = figures.value_of(f"{name}.json geometric_mean")
    colour = scheme.today if figures.is_of_today(f"{name}.json") else scheme.older
    said = f"{label}, {len(ratios)} shapes"
    figure = f'fill="{colour}" font-size="15" font-weight="bold"'
    return "\n".join(
        [
            _text(LEFT - 40, y + 5, said, f'fill="{scheme.ink}" text-anchor="end" font-size="14"'),
            *(_dot(x_of(ratio), y, f'fill="{colour}" fill-opacity="0.45"') for ratio in ratios),
            _line(x_of(mean), (y - 15, y + 15), f'stroke="{colour}" stroke-width="4"'),
            _text(WIDTH - RIGHT + 12, y + 5, f"{mean:.2f}", figure),
        ]
    )


def _key(scheme: Scheme, y: float) -> str:
    ink = f'fill="{scheme.ink}"'
    marks = "dot: one shape; bar and figure: geometric mean of the shapes"
    return "\n".join(
        [
            _text(LEFT, y, marks, ink),
            _dot(LEFT + 5, y + 20, f'fill="{scheme.today}"'),
            _text(LEFT + 16, y + 25, "kernels of today", ink),
            _dot(LEFT + 155, y + 20, f'fill="{scheme.older}"'),
            _text(LEFT + 166, y + 25, "an earlier version of the templates", ink),
        ]
    )


def _dot(x: float, y: float, style: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {style}/>'


def _line(x: float, span: tuple[float, float], style: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{span[0]:.1f}" y2="{span[1]:.1f}" {style}/>'


def _text(x: float, y: float, said: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{said}</text>'


def alt_text() -> str:
    """Return the chart in one sentence, for readers who cannot see it."""
    means = [
        f"{label} {figures.value_of(f'{name}.json geometric_mean'):.2f}" for label, name in CHARTED
    ]
    return f"Speed over the fastest call of cuBLAS on an H200, geometric means: {', '.join(means)}"


def picture() -> str:
    """Return the README's picture element, which follows the reader's colour scheme."""
    return "\n".join(
        [
            "<picture>",
            '  <source media="(prefers-color-scheme: dark)" srcset="docs/img/overview_dark.svg">',
            f'  <img alt="{alt_text()}" src="docs/img/overview_light.svg">',
            "</picture>",
        ]
    )


def with_blocks(text: str) -> str:
    """Return the page with each generated block as the results have it."""
    for name, block in (("chart", picture()), ("session", session()), ("results", table())):
        first, last = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(first)
        _, ended, after = rest.partition(last)
        if not (found and ended):
            raise figures.FigureError(f"no block {first} ... {last}")
        text = f"{before}{first}\n{block}\n{last}{after}"
    return text


def files() -> dict[Path, str]:
    """Return the files that this script writes, with their text."""
    pictures = {PICTURES / f"overview_{one.name}.svg": chart(one) for one in (LIGHT, DARK)}
    return pictures | {README: with_blocks(README.read_text())}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--update", is_flag=True, help="Write the files.")
def main(update: bool) -> None:
    """Compare what the README shows with the committed results."""
    stale = [p for p, text in files().items() if not p.is_file() or p.read_text() != text]
    for path in stale:
        click.echo(f"{path.relative_to(figures.ROOT)}: {'written' if update else 'stale'}")
        if update:
            write_atomically(path, files()[path].encode())
    sys.exit(1 if stale and not update else 0)


if __name__ == "__main__":
    main()
