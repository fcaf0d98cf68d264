"""An explanation in sentences, the verdict first."""

from autogemm.insight.explain.explanation import Explanation
from autogemm.insight.explain.times import Missing
from autogemm.model.splitting import multiplied

# Shares below which a loss is not worth a sentence, and is not worth a trial.
WORTH_SAYING = 0.02
WORTH_TRYING = 0.05
# As many times what the same bytes need at least: then the pattern of accesses is at fault.
WASTEFUL = 1.2
VERY_WASTEFUL = 2.0
# An SM with so many FP32 cores has four schedulers, each of which feeds one instruction a clock.
CORES_FED_EACH_CLOCK = 128


def conclusion(explained: Explanation) -> list[str]:
    """Return sentences on what keeps the kernel from the GPU's peak; the first is the verdict."""
    return [
        f"In short: {_verdict(explained)}.",
        *_peak(explained),
        *_issue(explained),
        *_waves(explained),
        *_registers(explained),
        *_patterns(explained),
    ]


def _verdict(explained: Explanation) -> str:
    """Name the heaviest of the limits that static facts show, or say that none stands out."""
    compiled, waves, accesses = explained.compiled, explained.waves, explained.accesses
    spills = not isinstance(compiled, Missing) and any(
        one.spill_load_bytes for one in compiled.kernels
    )
    lost = 0.0 if isinstance(waves, Missing) else max((one.lost_share for one in waves), default=0)
    known = None if isinstance(accesses, Missing) else accesses
    shared = (known.shared_share if known else None) or 0.0
    limits = {
        "device memory limits this problem, whatever the kernel": (
            explained.intensity.levels[0].times_ridge < 1
        ),
        "the kernel needs more registers than it has, and spills to memory": spills,
        "global memory is accessed in a wasteful pattern": (
            known is not None and known.global_times_ideal > VERY_WASTEFUL
        ),
        "shared memory takes longer than the multiply-adds that it feeds": shared > 1,
        f"the grid does not fill the GPU evenly: {lost:.0%} of it is idle": lost > WORTH_TRYING,
        "arithmetic limits the kernel, and accesses to shared memory take issue slots from it": (
            known is not None and known.shared_times_ideal > WASTEFUL
        ),
    }
    found = [words for words, holds in limits.items() if holds]
    is_partial = any(isinstance(one, Missing) for one in (compiled, waves, accesses))
    rest = "; some facts are missing, see below" if is_partial else ""
    none = "arithmetic limits the kernel, and no single loss stands out"
    return f"{found[0] if found else none}{rest}"


def _peak(explained: Explanation) -> list[str]:
    device, found = explained.device, []
    timing = explained.timing
    if not isinstance(timing, Missing) and timing.of_peak is not None:
        found.append(
            f"It computes at {timing.of_peak:.0%} of the GPU's "
            f"{multiplied(explained.problem.dtype, explained.config)} peak of "
            f"{timing.tflops / timing.of_peak:.3g} TFLOP/s at the highest clock."
        )
    dram = explained.intensity.levels[0]
    if dram.times_ridge < 1:
        most = 1e-3 * device.peak_bandwidth_gb_s * dram.flop_per_byte
        found.append(
            f"The problem is bound by memory: {dram.flop_per_byte:.3g} FLOP per byte that must "
            f"move, below the ridge of {dram.ridge_flop_per_byte:.3g}, allow {most:.3g} TFLOP/s."
        )
    else:
        found.append(
            f"Device memory does not bound this problem: {dram.flop_per_byte:.3g} FLOP per byte "
            f"that must move, against a ridge of {dram.ridge_flop_per_byte:.3g}."
        )
    return found


def _issue(explained: Explanation) -> list[str]:
    if isinstance(explained.main_loops, Missing):
        return []
    mixes = [loop.mix for loop in explained.main_loops if loop.mix is not None and loop.mix.ffma]
    # Beside tensor cores they scale sums, and say nothing of the rate of products.
    if not mixes or any(mix.tensor for mix in mixes):
        return []
    mix = max(mixes, key=lambda mix: mix.ffma)
    text = f"Its main loop issues {mix.instructions} instructions for {mix.ffma} multiply-adds"
    if explained.device.fp32_cores_per_sm == CORES_FED_EACH_CLOCK:
        text += f", so at most {mix.ffma / mix.instructions:.0%} of the peak is attainable"
    return [f"{text}."]


def _waves(explained: Explanation) -> list[str]:
    if isinstance(explained.waves, Missing):
        return []
    return [
        f"The {one.blocks} blocks of {one.kernel} fill the GPU {one.waves:.3g} times: "
        f"on average {one.lost_share:.0%} of it is idle, because of the last wave."
        for one in explained.waves
        if one.lost_share > WORTH_SAYING
    ]


def _registers(explained: Explanation) -> list[str]:
    found = []
    if not isinstance(explained.residency, Missing):
        found += [
            f"An SM holds {one.blocks_per_sm} blocks of {one.kernel} at a time "
            f"({one.fraction:.0%} of its warps); {one.limiter} limit{_s(one.limiter)} this number."
            for one in explained.residency[:1]
        ]
    if not isinstance(explained.compiled, Missing):
        spilled = sum(one.spill_load_bytes for one in explained.compiled.kernels)
        if spilled:
            found.append(f"The compiler spills registers: {spilled} bytes are reloaded.")
    return found


def _s(noun: str) -> str:
    return "" if noun.endswith("s") else "s"


def _patterns(explained: Explanation) -> list[str]:
    found = explained.accesses
    if isinstance(found, Missing):
        return []
    words = []
    if found.shared_times_ideal > WASTEFUL:
        words.append(
            f"Shared memory is accessed in {found.shared_times_ideal:.2g} times the minimum number "
            "of wavefronts: there are bank conflicts, or loads that several lanes could share."
        )
    if found.global_times_ideal > WASTEFUL:
        words.append(
            f"Global memory is accessed in {found.global_times_ideal:.2g} times the minimum number "
            "of sectors: neighbouring lanes do not read neighbouring words."
        )
    return words
