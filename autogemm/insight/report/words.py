"""A run in sentences: the winner, its lead, its limits, and what to try next."""

import statistics

from autogemm.insight.analysis import RunTrials
from autogemm.insight.explain import Explanation, Missing
from autogemm.model.results.outcome import Finals, FinalsEntry, StopRule
from autogemm.model.splitting import multiplied

# Shares below which a loss is not worth a sentence.
WORTH_SAYING = 0.02
WORTH_TRYING = 0.05
# As many times what the same bytes need at least: then the pattern of accesses is at fault.
WASTEFUL = 1.2
# An SM with so many FP32 cores has four schedulers, each of which feeds one instruction a clock.
CORES_FED_EACH_CLOCK = 128


def outcome_words(trials: RunTrials) -> list[str]:
    """Return sentences on the winner and its lead."""
    finals, problem = trials.run.finals, trials.run.spec.problem
    if finals is None:
        return [*_best_of_search(trials), _search_words(trials)]
    winner, how = finals.winner, "recorded" if trials.is_recorded else "measured"
    family = winner.config.family if winner.config else winner.name
    won = (
        f"A config of {family} won: {winner.time_us:.4g} us, "
        f"{problem.tflops(winner.time_us):.4g} TFLOP/s, {how} on {trials.run.spec.device.name}."
    )
    return [won, _margin(winner, finals), *_ties(trials), _search_words(trials)]


def _best_of_search(trials: RunTrials) -> list[str]:
    steps = trials.best_so_far()
    if not steps:
        return ["No config ran: the table of ends says why."]
    return [
        f"The best so far is trial {steps[-1].number} with {steps[-1].merit:.4g} {trials.unit}. "
        "It was not compared with cuBLAS: the run had no finals."
    ]


def _margin(winner: FinalsEntry, finals: Finals) -> str:
    ratio, baseline = winner.ratio, finals.baseline
    against = f"cuBLAS takes {baseline.time_us:.4g} us: "
    if baseline.tied:
        return f"{against}no difference between the two was shown."
    interval = ""
    if finals.confidence is not None:
        interval = (
            f" ({100 * finals.confidence:.3g} % interval of paired rounds "
            f"{winner.ratio_low:.3f} to {winner.ratio_high:.3f})"
        )
    word = "faster" if ratio > 1 else "slower"
    return f"{against}the winner is {abs(ratio - 1):.1%} {word}{interval}."


def _ties(trials: RunTrials) -> list[str]:
    finals = trials.run.finals
    tied = len(finals.ties) if finals else 0
    if not tied:
        return []
    return [
        f"{tied} other finalist{'s are' if tied > 1 else ' is'} as good as the winner, as far as "
        "the finals can tell."
    ]


def _search_words(trials: RunTrials) -> str:
    merits = trials.merits()
    text = f"{trials.run.num_trials} configs were tried, {trials.run.num_ok} ran"
    if merits:
        middle = statistics.median(merits)
        best = max(merits) if trials.more_is_better else min(merits)
        text += (
            f"; the best reached {best:.4g}, the median {middle:.4g} {trials.unit}, and the best "
            f"was found at trial {trials.best_so_far()[-1].number}"
        )
    stopped = trials.run.stopped_by
    return text + (f". The search ended because {stopped.words}." if stopped else ".")


def limit_words(explained: Explanation | Missing) -> list[str]:
    """Return what keeps the winner from the peak, from static facts."""
    if isinstance(explained, Missing):
        return [f"What limits it cannot be said here: {explained.missing}"]
    return [
        *_peak(explained),
        *_issue(explained),
        *_waves(explained),
        *_registers(explained),
        *_patterns(explained),
    ]


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
    if not mixes:
        return []
    mix = max(mixes, key=lambda mix: mix.ffma)
    text = f"Its main loop issues {mix.instructions} instructions for {mix.ffma} multiply-adds"
    if explained.device.fp32_cores_per_sm == CORES_FED_EACH_CLOCK:
        text += f", so that at most {mix.ffma / mix.instructions:.0%} of the peak is in reach"
    return [f"{text}."]


def _waves(explained: Explanation) -> list[str]:
    if isinstance(explained.waves, Missing):
        return []
    return [
        f"The {one.blocks} blocks of {one.kernel} fill the GPU {one.waves:.3g} times: "
        f"{one.lost_share:.0%} of it is idle on average, in the last wave."
        for one in explained.waves
        if one.lost_share > WORTH_SAYING
    ]


def _registers(explained: Explanation) -> list[str]:
    found = []
    if not isinstance(explained.residency, Missing):
        found += [
            f"An SM holds {one.blocks_per_sm} blocks of {one.kernel} at a time "
            f"({one.fraction:.0%} of its warps); {one.limiter} limit{_s(one.limiter)} that."
            for one in explained.residency[:1]
        ]
    if not isinstance(explained.compiled, Missing):
        spilled = sum(one.spill_load_bytes for one in explained.compiled.kernels)
        if spilled:
            found.append(f"The compiler spills registers: {spilled} bytes are loaded back.")
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
            f"Shared memory is accessed in {found.shared_times_ideal:.2g} times as many wavefronts "
            "as the same bytes need at least: bank conflicts, or loads that several lanes could "
            "share."
        )
    if found.global_times_ideal > WASTEFUL:
        words.append(
            f"Global memory is accessed in {found.global_times_ideal:.2g} times as many sectors as "
            "the same bytes need at least: neighbouring lanes do not read neighbouring words."
        )
    return words


def advice(
    trials: RunTrials, explained: Explanation | Missing, shares: dict[str, float]
) -> list[str]:
    """Return advice on what to try next, the most promising first."""
    run = trials.run
    found = [*_cures(explained), *_longer(trials)]
    if shares:
        names = ", ".join(list(shares)[:3])
        found.append(
            f"The fastest tenth is set apart mostly by {names}: narrow the others with --fix, or "
            "widen these in the family's search space."
        )
    if trials.is_recorded:
        found.append("The times are recorded: autogemm tune on the GPU measures them.")
    if run.finals is None:
        found.append("The run has no finals: the same tune command goes on and compares.")
    else:
        found.append(f"autogemm export best.cu --run {run.run_id} writes the winner as one file.")
    return found


def _cures(explained: Explanation | Missing) -> list[str]:
    if isinstance(explained, Missing):
        return []
    has = explained.config.as_dict()

    def named(*names: str) -> str:
        return ", ".join(name for name in names if name in has) or "the tile"

    found = []
    if not isinstance(explained.waves, Missing):
        lost = max((one.lost_share for one in explained.waves), default=0.0)
        if lost > WORTH_TRYING:
            cure = named("STREAM_BLOCKS", "SPLIT_K", "BM", "BN")
            found.append(f"Fill the last wave, which leaves {lost:.0%} idle: {cure}.")
    accesses = explained.accesses
    if not isinstance(accesses, Missing):
        if accesses.shared_times_ideal > WASTEFUL:
            cure = named("LANE_MAP", "PAD_A", "PAD_B", "PAD")
            found.append(f"Spread shared memory's wavefronts over the banks: {cure}.")
        if accesses.global_times_ideal > WASTEFUL:
            cure = named("VEC_LOAD", "VEC_STORE", "COALESCED")
            found.append(f"Let neighbouring lanes load neighbouring words: {cure}.")
    compiled = explained.compiled
    if not isinstance(compiled, Missing) and any(one.spill_load_bytes for one in compiled.kernels):
        found.append(f"Avoid the spills: {named('TM', 'TN', 'REG_STAGES', 'MIN_BLOCKS')}.")
    return found


def _longer(trials: RunTrials) -> list[str]:
    steps, total = trials.best_so_far(), trials.run.num_trials
    if not steps or total < 20 or trials.run.stopped_by is StopRule.USED_UP:
        return []
    last = steps[-1].number
    if last > 0.8 * total:
        return [f"The best came late, at trial {last} of {total}: search longer (--trials)."]
    if last < 0.5 * total:
        return [
            f"Nothing better came in the last {total - 1 - last} trials: a longer search of the "
            "same space promises little."
        ]
    return []
