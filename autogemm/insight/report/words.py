"""A run in sentences: the winner, its lead, and what to try next."""

import statistics
from collections.abc import Callable, Iterator

from autogemm.insight.analysis import RunTrials
from autogemm.insight.explain import WASTEFUL, WORTH_TRYING, Explanation, Missing, Neighbour
from autogemm.model.config import Config
from autogemm.model.results.outcome import Finals, FinalsEntry, StopRule

# At most so many changes are named for one loss.
MOST_CHANGES = 4


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
        return ["No config ran; the table of configs that did not run gives the reasons."]
    return [
        f"The best so far is trial {steps[-1].number} with {steps[-1].merit:.4g} {trials.unit}. "
        "It was not compared with cuBLAS: the run had no finals."
    ]


def _margin(winner: FinalsEntry, finals: Finals) -> str:
    ratio, baseline = winner.ratio, finals.baseline
    against = f"cuBLAS takes {baseline.time_us:.4g} us: "
    if baseline.tied:
        return f"{against}the difference is not significant."
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
        f"{tied} other finalist{'s are' if tied > 1 else ' is'} not significantly slower than the "
        "winner."
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


def advice(
    trials: RunTrials,
    explained: Explanation | Missing,
    shares: dict[str, float],
    *,
    is_stored: bool = True,
) -> list[str]:
    """Return advice on what to try next, the most promising first.

    A change of the winner is named only if its constraints and the run's own --fix allow it, the
    search would take it, and the run has not tried it. ``is_stored`` says whether the winner's
    source is.
    """
    run = trials.run
    found = [*_cures(trials, explained), *_longer(trials)]
    if shares and not run.spec.fix and run.stopped_by is not StopRule.USED_UP:
        names = ", ".join(list(shares)[:3])
        found.append(
            f"{names} distinguish the fastest tenth most: --fix on the others leaves more trials "
            "for these."
        )
    if trials.is_recorded:
        found.append("The times are recorded: run autogemm tune on the GPU to measure them.")
    if run.finals is None:
        found.append("The run has no finals: repeat the tune command to continue and compare.")
    elif is_stored:
        found.append(f"Write the winner as one file: autogemm export best.cu --run {run.run_id}.")
    return found


def _cures(trials: RunTrials, explained: Explanation | Missing) -> Iterator[str]:
    if isinstance(explained, Missing):
        return
    untried = list(_untried(trials, explained))

    def named(fits: Callable[[Neighbour], bool], *names: str) -> list[Neighbour]:
        return [one for one in untried if one.parameter in names and fits(one)]

    yield from _fuller_waves(explained, named)
    accesses, compiled = explained.accesses, explained.compiled
    if not isinstance(accesses, Missing):
        if accesses.shared_times_ideal > WASTEFUL:
            changes = named(lambda one: True, "LANE_MAP", "PAD_A", "PAD_B", "PAD")
            yield from _advised("Spread accesses to shared memory over its banks", changes)
        if accesses.global_times_ideal > WASTEFUL:
            changes = named(_is_larger, "VEC_LOAD", "VEC_STORE", "COALESCED")
            yield from _advised("Let neighbouring lanes load neighbouring words", changes)
    if not isinstance(compiled, Missing) and any(one.spill_load_bytes for one in compiled.kernels):
        changes = named(_is_smaller, "TM", "TN", "REG_STAGES", "MIN_BLOCKS")
        yield from _advised("Avoid the spills", changes)


def _fuller_waves(explained: Explanation, named: Callable[..., list[Neighbour]]) -> Iterator[str]:
    own = explained.neighbours.own.lost_share
    if own is None or own <= WORTH_TRYING:
        return

    def is_fuller(one: Neighbour) -> bool:
        lost = one.facts.lost_share
        return lost is not None and lost < own - WORTH_TRYING

    changes = named(is_fuller, "STREAM_BLOCKS", "SPLIT_K", "BM", "BN")
    changes.sort(key=lambda one: one.facts.lost_share or 0.0)
    yield from _advised(f"Fill the last wave, which leaves {own:.0%} of the GPU idle", changes)


def _untried(trials: RunTrials, explained: Explanation) -> Iterator[Neighbour]:
    """The neighbours of the winner that the run may try and did not."""
    tried = {trial.outcome.config.sha256 for trial in trials.trials}
    fixed = dict(trials.run.spec.fix)
    family, values = explained.config.family, explained.config.as_dict()
    for one in explained.neighbours.neighbours:
        other = Config.of(family, values | {one.parameter: one.after})
        is_allowed = one.after in fixed.get(one.parameter, (one.after,))
        if is_allowed and other.sha256 not in tried:
            yield one


def _advised(aim: str, changes: list[Neighbour]) -> list[str]:
    """Return one sentence, or none where nothing is left to try."""
    if not changes:
        return []
    chosen = changes[:MOST_CHANGES]
    texts = ", ".join(f"{one.parameter} {one.before} -> {one.after}" for one in chosen)
    return [f"{aim}; legal and not tried yet: {texts}."]


def _is_larger(one: Neighbour) -> bool:
    return isinstance(one.after, int) and isinstance(one.before, int) and one.after > one.before


def _is_smaller(one: Neighbour) -> bool:
    return isinstance(one.after, int) and isinstance(one.before, int) and one.after < one.before


def _longer(trials: RunTrials) -> list[str]:
    steps, total = trials.best_so_far(), trials.run.num_trials
    if not steps or total < 20 or trials.run.stopped_by is StopRule.USED_UP:
        return []
    last = steps[-1].number
    if last > 0.8 * total:
        return [f"The best config came late, at trial {last} of {total}: search longer (--trials)."]
    if last < 0.5 * total:
        return [
            f"The last {total - 1 - last} trials brought no improvement: a longer search of the "
            "same space promises little."
        ]
    return []
