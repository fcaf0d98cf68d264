"""What a comparison of kernels shows, in sentences."""

from collections.abc import Iterator
from itertools import pairwise

from autogemm.catalogue.ladder import rungs
from autogemm.insight.analysis import Comparison, Timed
from autogemm.model.dtypes import DType
from autogemm.model.hardware.device import Ceilings, Device
from autogemm.model.results.benchmark import KernelKind

# Below this share a rung counts as slower than the one before: clocks drift by a per cent.
SLOWER = 0.98


def bench_words(comparison: Comparison) -> list[str]:
    """The fastest FP32 kernel of our own of each size, and how it stands to cuBLAS and to naive."""
    found = [_fastest(size, each, comparison) for size, each in _by_size(comparison)]
    if comparison.ceilings is not None:
        found.append(_reached(comparison.ceilings, comparison.device))
    return found


def _reached(ceilings: Ceilings, device: Device) -> str:
    """What the card did with nothing else to do."""
    text = (
        f"The card reached {ceilings.fma_tflops:.3g} TFLOP/s of multiply-adds that do nothing "
        f"else, of {device.peak_f32_tflops:.3g} in theory, and copied {ceilings.copy_gb_s:.4g} of "
        f"{device.peak_bandwidth_gb_s:.4g} GB/s"
    )
    if ceilings.l2_gb_s is not None:
        text += f"; what L2 holds it read at {ceilings.l2_gb_s:.4g} GB/s"
    return f"{text}."


def _by_size(comparison: Comparison) -> Iterator[tuple[str, list[Timed]]]:
    """The largest first. FP32 kernels only: others do less work for the same figure."""
    timed = [one for one in comparison.timed() if one.problem.dtype.has_fp32_products]
    for size in reversed(comparison.sizes()):
        each = [one for one in timed if one.problem.size_label == size]
        if each:
            yield size, each


def _best_own(timed: list[Timed]) -> Timed:
    """The fastest that is no library's; of libraries alone the fastest of them."""
    own = [one for one in timed if one.kind is not KernelKind.LIBRARY]
    return max(own or timed, key=lambda one: one.metrics.gflops)


def _fastest(size: str, timed: list[Timed], comparison: Comparison) -> str:
    best = _best_own(timed)
    text = f"{size}: {best.kernel} is the fastest with {best.tflops:.4g} TFLOP/s"
    found = best.metrics
    if found.percent_of_cublas is not None and not best.is_baseline:
        sgemm = " SGEMM" if best.problem.dtype is DType.F32 else ""
        text += f", {found.percent_of_cublas:.4g} % of cuBLAS{sgemm}"
    if found.speedup_over_naive is not None:
        text += f" and {found.speedup_over_naive:.3g} times naive"
    return f"{text} ({comparison.provenance})."


def limits_of_kernels(comparison: Comparison) -> list[str]:
    """Which sizes memory bounds, and how far below the roof the fastest stay."""
    found = []
    for size, each in _by_size(comparison):
        best = _best_own(each)
        share, flop_per_byte = best.metrics.percent_of_roof, best.metrics.flop_per_byte
        roof = best.roof
        if share is None or roof is None:
            continue
        what = "memory" if flop_per_byte < roof.ridge_flop_per_byte else "arithmetic"
        found.append(
            f"{size}: {flop_per_byte:.3g} FLOP per byte that must move, so {what} is the roof; "
            f"{best.kernel} reaches {share:.3g} % of it."
        )
    return found


def losses(comparison: Comparison) -> list[str]:
    """Rungs that lost to the rung before, at the largest size: what did not pay on this card."""
    order = [rung.name for rung in rungs()]
    if not comparison.sizes():
        return []
    size = comparison.sizes()[-1]
    gflops = {
        one.kernel: one.metrics.gflops
        for one in comparison.timed()
        if one.problem.size_label == size and one.kernel in order
    }
    climbed = [name for name in order if name in gflops]
    return [
        f"{name}: {gflops[name] / gflops[before]:.3g} times the speed of {before} at {size}."
        for before, name in pairwise(climbed)
        if gflops[name] < SLOWER * gflops[before]
    ]
