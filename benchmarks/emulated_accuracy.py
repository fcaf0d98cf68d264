"""Errors of FP32 from tensor cores, beside cuBLAS SGEMM's on the same inputs.

    emulated_accuracy.py errors --out FILE.csv    on a GPU: against K, and the spread of exponents;
                                                  of whole squares, where K is the side
    emulated_accuracy.py hard                     on a GPU: infinity, NaN, tiny and huge numbers
    emulated_accuracy.py draw FILE.csv --out FILE.svg

An error is C - reference, the reference in float64: in the norm of Frobenius relative to the
reference, and component by component relative to |A||B|, of which the largest counts.
"""

import csv
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from autogemm.catalogue.palette import THEMES
from autogemm.cli.output import print_rows
from autogemm.codegen import render
from autogemm.compile import Compiler
from autogemm.model.config import Config, Value
from autogemm.model.kernel import KernelSource, LaunchPlan
from autogemm.model.problem import Problem
from autogemm.model.signature import extents, factors
from autogemm.space import launch_plan, load_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Matrix = NDArray[np.float32]
BASELINE = "cuBLAS SGEMM"
WGMMA, MMA = "sgemm_emulated_wgmma", "sgemm_emulated"
# As changes to the family's first seed.
KERNELS: dict[str, tuple[str, dict[str, Value]]] = {
    "f16x3, CHUNK 64": (WGMMA, {"CHUNK": 64}),
    "f16x3, CHUNK 128": (WGMMA, {"CHUNK": 128}),
    "f16x3, CHUNK 256": (WGMMA, {"CHUNK": 256}),
    "tf32x3, CHUNK 8": (MMA, {"SPLIT": "tf32x3", "CHUNK": 8}),
    "bf16x6, CHUNK 16": (MMA, {"SPLIT": "bf16x6", "CHUNK": 16}),
    "bf16x6, CHUNK 128": (MMA, {"SPLIT": "bf16x6", "CHUNK": 128}),
}
# Those that are tried on hard numbers.
HARD = ("f16x3, CHUNK 64", "tf32x3, CHUNK 8", "bf16x6, CHUNK 16")
SIZE = 1024
DEPTHS = (512, 1024, 2048, 4096, 8192, 16384)
FILLS = ("normal", "uniform", "wide")
# Exponents of "wide" lie evenly between -WIDE and WIDE.
WIDE = 12
SPREADS = (0, 2, 4, 6, 8, 10, 12, 14, 16, 20, 30, 40)
SPREAD_DEPTH = 4096
# Squares, whose largest errors are those of more elements; for the kernel that is compared alone.
SQUARES = (1024, 2048, 4096, 8192)
COMPARED = "f16x3, CHUNK 64"
COLUMNS = ("sweep", "fill", "spread", "k", "kernel", "frobenius", "componentwise")


class Gpu:
    """Runs kernels on CuPy arrays."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self._arch = f"sm_{cupy.cuda.Device().compute_capability}"
        self._modules: dict[str, Any] = {}

    def __enter__(self) -> "Gpu":
        self._compiler = Compiler()
        self._scratch = tempfile.TemporaryDirectory()
        self._folder = Path(self._scratch.name)
        return self

    def __exit__(self, *_: object) -> None:
        self._compiler.close()
        self._scratch.cleanup()

    def normal(self, rows: int, columns: int, spread: float, seed: int) -> Any:
        """Normal numbers, times two to a power that lies evenly within +-spread."""
        cupy = self.cupy
        random = cupy.random.default_rng(seed)
        numbers = random.standard_normal((rows, columns))
        if spread:
            numbers *= cupy.exp2((random.random((rows, columns)) * 2 - 1) * spread)
        return numbers.astype(cupy.float32)

    def uniform(self, rows: int, columns: int, seed: int) -> Any:
        """Numbers of [0, 1)."""
        return self.cupy.random.default_rng(seed).random((rows, columns), dtype=self.cupy.float32)

    def multiply(self, kernel: str, a: Any, b: Any) -> Any:
        """The product by one of the kernels, or by cuBLAS."""
        if kernel == BASELINE:
            return self.cupy.matmul(a, b)
        problem = Problem(a.shape[0], b.shape[1], a.shape[1])
        source, plan = emitted(kernel, problem)
        module = self._module(source)
        c = self.cupy.full((problem.m, problem.n), self.cupy.nan, self.cupy.float32)
        workspace = self.cupy.zeros(max(plan.workspace_bytes, 4), self.cupy.uint8)
        values = {
            **{name: self.cupy.int32(value) for name, value in extents(problem).items()},
            **{name: self.cupy.float32(value) for name, value in factors(problem).items()},
            **{"A": a, "B": b, "C": c, "workspace": workspace},
        }
        arguments = tuple(values[name] for name in plan.signature.names)
        for launch in plan.launches:
            function = module.get_function(launch.kernel)
            if launch.smem_bytes > 48 * 1024:
                function.max_dynamic_shared_size_bytes = launch.smem_bytes
            function(launch.grid, launch.threads, arguments, shared_mem=launch.smem_bytes)
        return c

    def _module(self, source: KernelSource) -> Any:
        if source.sha256 not in self._modules:
            path = self._folder / f"{source.sha256}.cubin"
            path.write_bytes(self._compiler.compile(source, self._arch).cubin)
            self._modules[source.sha256] = self.cupy.RawModule(path=str(path))
        return self._modules[source.sha256]


def errors_of(library: Any, c: Any, a: Any, b: Any) -> tuple[float, float]:
    """Relative in the norm of Frobenius, and the largest relative to |A||B|. ``library`` is NumPy
    or CuPy, whichever has the arrays.
    """
    exact_a, exact_b = a.astype(library.float64), b.astype(library.float64)
    reference = exact_a @ exact_b
    sizes = library.abs(exact_a) @ library.abs(exact_b)
    error = library.abs(c - reference)
    relative = library.where(error == 0, 0, error / sizes)
    norms = library.linalg.norm(error), library.linalg.norm(reference)
    return float(norms[0] / norms[1]), float(relative.max())


def emitted(kernel: str, problem: Problem) -> tuple[KernelSource, LaunchPlan]:
    """Text and launches of one of the kernels for a problem."""
    name, changes = KERNELS[kernel]
    family = load_family(name)
    config = Config.of(name, family.seeds[0].as_dict() | changes)
    return render(family, config, problem), launch_plan(family, config, problem)


def inputs(gpu: Gpu, fill: str, size: int, depth: int, spread: float) -> tuple[Any, Any]:
    """size x depth and depth x size."""
    if fill == "uniform":
        return gpu.uniform(size, depth, depth), gpu.uniform(depth, size, depth + 1)
    return gpu.normal(size, depth, spread, depth), gpu.normal(depth, size, spread, depth + 1)


def sweeps(gpu: Gpu) -> Iterator[dict[str, object]]:
    """One row for each kernel and input."""
    spreads = {"wide": WIDE}
    points = [
        *(("depth", fill, spreads.get(fill, 0), k) for k in DEPTHS for fill in FILLS),
        *(("spread", "wide", spread, SPREAD_DEPTH) for spread in SPREADS),
        *(("square", fill, spreads.get(fill, 0), n) for n in SQUARES for fill in FILLS),
    ]
    for sweep, fill, spread, depth in points:
        square = sweep == "square"
        a, b = inputs(gpu, fill, depth if square else SIZE, depth, spread)
        for kernel in (BASELINE, COMPARED) if square else (BASELINE, *KERNELS):
            frobenius, componentwise = errors_of(gpu.cupy, gpu.multiply(kernel, a, b), a, b)
            errors = (f"{frobenius:.3e}", f"{componentwise:.3e}")
            row = (sweep, fill, spread, depth, kernel, *errors)
            yield dict(zip(COLUMNS, row, strict=True))


def hard_inputs() -> dict[str, tuple[Matrix, Matrix]]:
    """Inputs that break a split into parts, made by NumPy, which keeps subnormal numbers."""
    depth = 1024
    random = np.random.default_rng(9)
    a = random.standard_normal((SIZE, depth)).astype(np.float32)
    b = random.standard_normal((depth, SIZE)).astype(np.float32)
    ones = [1 + random.random(shape) for shape in (a.shape, b.shape)]
    changed = {name: (a.copy(), b.copy()) for name in ("infinity", "NaN", "infinity times zero")}
    changed["infinity"][0][3, 7] = np.inf
    changed["NaN"][0][3, 7] = np.nan
    changed["infinity times zero"][0][0, 0] = np.inf
    changed["infinity times zero"][1][0] = 0
    for name in ("tiny rows beside large", "tiny numbers in each row", "cancellation"):
        changed[name] = (a.copy(), b.copy())
    changed["tiny rows beside large"][0][::2] *= np.float32(2.0**-60)
    changed["tiny numbers in each row"][0][:, ::2] *= np.float32(2.0**-60)
    left, right = changed["cancellation"]
    left[:, depth // 2 :], right[depth // 2 :] = -left[:, : depth // 2], right[: depth // 2]
    left[:, 0] += np.float32(2.0**-10)
    changed["large meets zero"] = (np.full_like(a, 2.0**-40), b.copy())
    changed["large meets zero"][0][:, 0] = 1
    changed["large meets zero"][1][0] = 0
    scales = {
        **{"near overflow": (124, -10), "overflow": (126, 0), "underflow": (-80, -50)},
        **{"2^-149 times 2^120": (-149, 120), "2^-127 times 2^120": (-127, 120)},
    }
    for name, (first, second) in scales.items():
        sources = ones if "times" in name else (a, b)
        pair = (np.ldexp(sources[0], first), np.ldexp(sources[1], second))
        changed[name] = (pair[0].astype(np.float32), pair[1].astype(np.float32))
    for spread in (20, 60):
        powers = [np.exp2((random.random(x.shape) * 2 - 1) * spread) for x in (a, b)]
        changed[f"exponents +-{spread}"] = (
            (a * powers[0]).astype(np.float32),
            (b * powers[1]).astype(np.float32),
        )
    changed["identity"] = (np.eye(SIZE, depth, dtype=np.float32), b)
    changed["half zeros"] = (np.maximum(a, 0), np.maximum(b, 0))
    return changed


def draw_errors(figure: "Figure", rows: list[dict[str, str]]) -> None:
    """Above in the norm of Frobenius, below the largest component; against K, then the spread."""
    from matplotlib.ticker import NullFormatter

    from autogemm.insight.plots.drawing import LINES, MARKERS, colours, titled

    roles = list(colours().roles())
    figure.set_size_inches(14.0, 7.0)
    panels = [(fill, "depth", "k") for fill in FILLS] + [("wide", "spread", "spread")]
    axes = figure.subplots(2, len(panels), sharey="row", squeeze=False)
    for column, (fill, sweep, x) in enumerate(panels):
        chosen = [row for row in rows if row["sweep"] == sweep and row["fill"] == fill]
        for line, measure in enumerate(("frobenius", "componentwise")):
            place = axes[line][column]
            for i, kernel in enumerate((BASELINE, *KERNELS)):
                points = [row for row in chosen if row["kernel"] == kernel]
                at, errors = ([float(row[name]) for row in points] for name in (x, measure))
                look = {"linestyle": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)]}
                hue = colours().ink if kernel == BASELINE else roles[i % len(roles)]
                place.plot(at, errors, label=kernel, color=hue, **look)
            place.set_yscale("log")
            place.yaxis.set_major_formatter("{x:.0e}")
            place.yaxis.set_minor_formatter(NullFormatter())
            place.grid()
            if sweep == "depth":
                place.set_xscale("log", base=2)
                place.set_xticks(DEPTHS, map(str, DEPTHS), fontsize="small")
        axes[0][column].set_title(f"{fill}, K = {SPREAD_DEPTH}" if sweep == "spread" else fill)
        axes[1][column].set_xlabel("exponents within +-" if sweep == "spread" else "K")
    axes[0][0].set_ylabel("relative error, Frobenius")
    axes[1][0].set_ylabel("largest |error| / |A||B|")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    titled(
        figure,
        f"Errors of FP32 from tensor cores, M = N = {SIZE}",
        f"wide: exponents within +-{WIDE}",
    )


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
def main() -> None:
    pass


@main.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def errors(out: Path) -> None:
    """Measure errors against K and against the spread of exponents."""
    with Gpu() as gpu, out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sweeps(gpu))


@main.command()
def hard() -> None:
    """Compare with cuBLAS SGEMM on inputs that break a split into parts."""
    columns = ("input", "kernel", "nan", "infinite", "frobenius", "componentwise")
    rows = []
    with Gpu() as gpu, np.errstate(all="ignore"):
        for name, (a, b) in hard_inputs().items():
            for kernel in (BASELINE, *HARD):
                c = gpu.cupy.asnumpy(gpu.multiply(kernel, *map(gpu.cupy.asarray, (a, b))))
                row = (name, kernel, int(np.isnan(c).sum()), int(np.isinf(c).sum()))
                told = (f"{error:.1e}" for error in errors_of(np, c, a, b))
                rows.append(dict(zip(columns, (*row, *told), strict=True)))
    print_rows(rows, columns)


@main.command()
@click.argument("table", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--theme", "colours", type=click.Choice(list(THEMES)), default="light")
def draw(table: Path, out: Path, colours: str) -> None:
    """Draw the errors that `errors` measured."""
    from autogemm.insight.plots.drawing import check_plot, picture, theme

    check_plot(out)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with theme(colours):
        out.write_bytes(picture(draw_errors)(out.suffix, rows))


if __name__ == "__main__":
    main()
