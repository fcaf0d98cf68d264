"""The report of a tuning run: a table and a few lines."""

from collections.abc import Collection, Sequence
from typing import Any

from autogemm.cli.prose import say
from autogemm.cli.table import is_wide, print_table
from autogemm.model.config import Config, label, shared_values
from autogemm.model.results.columns import HEADS
from autogemm.model.results.outcome import (
    CONFIDENCE,
    AgainstBaseline,
    Call,
    Finals,
    FinalsEntry,
    Objective,
    Outcome,
    Provenance,
    Status,
    Sustained,
    Verification,
)
from autogemm.space import Family
from autogemm.support.amounts import counted, short_count
from autogemm.tuning import TuneResult

# Calls of cuBLAS that cannot be the baseline; all are in the JSON.
MOST_NAMED = 3
COLUMNS = (
    *("#", "family", "config", HEADS["time_us"], HEADS["tflops"], HEADS["ratio"], "interval"),
    *(HEADS["ratio_of_medians"], "spread %", HEADS["energy_mj"], HEADS["error"]),
    *("registers", "tie"),
)


def print_result(
    result: TuneResult, families: Sequence[Family], database: str, next_command: str | None
) -> None:
    """Print the table of the finals, the winner in words, and the next command if there is one.

    ``families`` are those that were searched; their seeds describe configs.
    """
    seeds = [seed for family in families for seed in family.seeds]
    if result.finals is not None:
        _print_finals(result, result.finals)
    _print_best(result, seeds)
    say(_search_line(result))
    for line in _wrong_lines(result):
        say(line)
    if result.best is None:
        return
    say(f"stored: run {result.run_id} in {database}")
    if next_command is not None and not result.interrupted:
        say(f"next: {next_command}")


def _print_finals(result: TuneResult, finals: Finals) -> None:
    configs = [entry.config for entry in finals.entries if entry.config is not None]
    shared = shared_values(configs)
    rows = [
        _row(str(place), entry, result, finals, shared)
        for place, entry in enumerate(finals.entries, 1)
    ]
    baseline = _row("", finals.baseline, result, finals, shared)
    rows.append(baseline | {"interval": None, "ratio_low": None})
    rows += [_call_row(call, result, finals) for call in finals.calls if call.time_us is not None]
    how = "recorded" if _is_recorded(result) else f"{finals.rounds} interleaved rounds"
    title = f"{result.problem.label} on {result.device_name}: finals, {how}"
    superfluous = {"family"} if len(result.families) == 1 else set()
    superfluous |= {HEADS["error"]} if result.max_error is None else set()
    columns = [name for name in COLUMNS if name not in superfluous]
    print_table(rows, columns, title=title, short=_short(result))
    if shared:
        say(f"all of them: {label(shared.items())}")
    if finals.confidence is not None and finals.confidence < CONFIDENCE:
        say(
            f"intervals are the extremes of {finals.rounds} rounds: they contain the true ratio "
            f"with {100 * finals.confidence:.3g} %, not {100 * CONFIDENCE:.3g} %"
        )


def _short(result: TuneResult) -> tuple[str, ...]:
    """Return the columns without --wide: other objectives replace columns of speed."""
    asked = "family" if len(result.families) > 1 else HEADS["tflops"]
    if result.max_error is not None:
        asked = HEADS["error"]
    if result.objective is not Objective.TIME:
        asked = HEADS["energy_mj"]
    return ("#", asked, "config", HEADS["time_us"], HEADS["ratio"], "interval")


def _row(
    place: str, entry: FinalsEntry, result: TuneResult, finals: Finals, shared: Collection[str]
) -> dict[str, Any]:
    spread = finals.spread_of(entry)
    checked = entry.verification
    low, high = entry.interval or (None, None)
    config = entry.name
    if entry.config is not None:
        own = label(pair for pair in entry.config if pair[0] not in shared)
        config = own or "(the one)"
    return {
        "#": place,
        "family": entry.config.family if entry.config is not None else None,
        "config": config,
        HEADS["time_us"]: entry.time_us,
        HEADS["tflops"]: result.problem.tflops(entry.time_us),
        HEADS["ratio"]: f"{entry.ratio:.3f}",
        "interval": _interval(entry),
        HEADS["ratio_of_medians"]: f"{finals.ratio_of_medians(entry):.3f}",
        "spread %": None if spread is None else f"{100 * spread:.2f}",
        HEADS["energy_mj"]: entry.energy_mj,
        HEADS["error"]: None if checked is None else f"{checked.error:.2e}",
        "registers": entry.registers,
        "tie": "tied" if entry.tied else None,
        # For the colour of the ratio.
        "ratio_low": low,
        "ratio_high": high,
    }


def _call_row(call: Call, result: TuneResult, finals: Finals) -> dict[str, Any]:
    """The row of a call that took part and was slower than the baseline."""
    assert call.time_us is not None
    return {
        "config": call.name,
        HEADS["time_us"]: call.time_us,
        HEADS["tflops"]: result.problem.tflops(call.time_us),
        HEADS["ratio_of_medians"]: f"{finals.baseline.time_us / call.time_us:.3f}",
    }


def calls_line(finals: Finals) -> str:
    """Return which call of cuBLAS is the baseline, and the ranks or faults of the others."""
    calls = finals.calls
    timed = sum(call.time_us is not None for call in calls)
    slower = sum(call.status is Status.TOO_SLOW for call in calls)
    wrong = [call for call in calls if call.status not in (Status.OK, Status.TOO_SLOW)]
    words = [f"baseline: {finals.baseline.name}, the fastest of {timed + 1} in all rounds"]
    words += [f"{slower} were slower before the rounds"] if slower else []
    words += [f"{call.name}: {call.reason}" for call in wrong[:MOST_NAMED]]
    words += [f"and {len(wrong) - MOST_NAMED} more"] if len(wrong) > MOST_NAMED else []
    return "; ".join(words)


def sustained_line(sustained: Sustained) -> str:
    """Return the times of winner and baseline when each runs alone."""
    times = f"{sustained.sustained_us:.4g} us against {sustained.sustained_baseline_us:.4g} us"
    line = f"sustained, each alone: {sustained.sustained_ratio:.3f} x, {times}"
    own_mj, baseline_mj = sustained.sustained_mj, sustained.sustained_baseline_mj
    if own_mj and baseline_mj:
        fewer = baseline_mj / own_mj
        line += f"; {own_mj:.4g} mJ against {baseline_mj:.4g} mJ a GEMM ({fewer:.3f} x)"
    return line


def _interval(entry: FinalsEntry) -> str | None:
    if entry.interval is None:
        return None
    low, high = entry.interval
    return f"{low:.3f}..{high:.3f}"


def by_seed(config: Config, seeds: Sequence[Config]) -> str:
    """Return the config as the nearest of its family's seeds and the differences from it.

    Seeds are counted from 0, as ``--seed-index`` counts them. The whole config with ``--wide``, or
    where there is no seed.
    """
    own = [seed for seed in seeds if seed.family == config.family]
    if not own or is_wide():
        return f"{config.family}: {config}"
    differing = [[pair for pair in config if pair not in seed.values] for seed in own]
    index = min(range(len(own)), key=lambda place: len(differing[place]))
    was = own[index].as_dict()
    changes = ", ".join(f"{name}={value} (was {was.get(name)})" for name, value in differing[index])
    return f"seed {index} of {config.family}" + (f" with {changes}" if changes else ", unchanged")


def _print_best(result: TuneResult, seeds: Sequence[Config]) -> None:
    finals = result.finals
    if finals is None:
        if result.best is not None and result.best.time_us is not None:
            say(_provisional_line(result, result.best, result.best.time_us))
        return
    winner = finals.winner
    assert winner.config is not None, "only the baseline has no config"
    interval = f" ({_interval(winner)})" if _interval(winner) else ""
    speed = result.problem.tflops(winner.time_us)
    remarks = [
        f"{winner.time_us:.4g} us, {speed:.4g} TFLOP/s, {winner.ratio:.3f} x cuBLAS{interval}",
        f"ratio of medians {finals.ratio_of_medians(winner):.3f}",
    ]
    if winner.energy_mj is not None and finals.baseline.energy_mj is not None:
        share = winner.energy_mj / finals.baseline.energy_mj
        remarks.append(f"{winner.energy_mj:.4g} mJ, {share:.3f} of cuBLAS's energy")
    against = finals.against_baseline
    if against is not AgainstBaseline.FASTER:
        remarks.append(
            f"{'a tie: ' if against is AgainstBaseline.TIED else ''}{against.words} cuBLAS"
        )
    if _is_recorded(result):
        remarks.append(f"recorded on {result.device_name}")
    say(f"winner: {by_seed(winner.config, seeds)}", bold=True)
    say(f"  {'; '.join(remarks)}")
    if finals.calls:
        say(f"  {calls_line(finals)}")
    if finals.sustained is not None:
        say(f"  {sustained_line(finals.sustained)}")
    if finals.ties:
        say(f"  {ties_line(finals, _is_recorded(result))}")
    if winner.verification is not None:
        baseline = finals.baseline.verification
        beside = f"; cuBLAS: {_errors(baseline)}" if baseline is not None else ""
        if result.max_error is not None:
            beside += f"; the limit is {result.max_error:.3g}"
        say(f"  {_errors(winner.verification)}{beside}")
    for check in result.certificate.checks if result.certificate is not None else ():
        say(f"  checked: {check.line}")
    for lost in finals.disqualified:
        say(f"  no winner: {lost.config}: {lost.reason}")


def ties_line(finals: Finals, is_recorded: bool) -> str:
    """Return how many kernels share the first place, and the rule that chose among them."""
    count = len(finals.ties)
    others = "another one is tied with it" if count == 1 else f"{count} others are tied with it"
    if is_recorded:
        return f"{others}: the recorded times are the same"
    # Where times decide, one energy of the winner alone is taken, behind the rounds.
    rounds = min(len(entry.samples_mj) for entry in finals.entries) or finals.rounds
    return (
        f"{others}: no significant difference in {rounds} rounds; first one that cuBLAS does not "
        "beat, then the smaller spread decides, then fewer registers"
    )


def _provisional_line(result: TuneResult, best: Outcome, time_us: float) -> str:
    how = "recorded" if _is_recorded(result) else "without finals"
    speed = result.problem.tflops(time_us)
    what = "best so far" if result.interrupted else "best"
    return f"{what} ({how}): {best.config}\n  {time_us:.4g} us, {speed:.4g} TFLOP/s"


def _errors(verification: Verification) -> str:
    return (
        f"largest error {verification.max_error_ratio:.2g} of its bound, "
        f"relative Frobenius {verification.error:.2g}"
    )


def _search_line(result: TuneResult) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in result.counts.items())
    extra = [f"{result.num_resumed} resumed"] if result.num_resumed else []
    extra += [f"{result.num_reused} known from before"] if result.num_reused else []
    extra += [f"{result.num_pruned} pruned"] if result.num_pruned else []
    of_them = f" ({', '.join(extra)})" if extra else ""
    if len(result.families) > 1:
        by_family = (
            f"{family.name} {len(result.of_family(family.name))}" for family in result.families
        )
        of_them += f" ({', '.join(by_family)})"
    if by_gpu := result.trials_by_gpu:
        of_them += f" ({', '.join(f'GPU {gpu}: {count}' for gpu, count in by_gpu.items())})"
    busy = "" if _is_recorded(result) else f", GPU busy {100 * result.gpu_busy:.0f} % of it"
    trials = counted(result.num_trials, "trial")
    return (
        f"search: {trials}{of_them} of {short_count(result.num_legal)} legal "
        f"configs in {result.search_s:.1f} s, {result.trials_per_s:.1f}/s{busy}: "
        f"{counts or 'none'}; {result.stopped_by.words}; finals {result.finals_s:.1f} s"
    )


def _wrong_lines(result: TuneResult) -> list[str]:
    """Return the first kernels that gave wrong results here: no legal config should."""
    if not result.wrong or _is_recorded(result):
        return []
    return [
        *(f"  wrong: {one.config}: {one.reason}" for one in result.wrong[:MOST_NAMED]),
        f"  {defects_text(len(result.wrong), result.run_id)}",
    ]


def defects_text(num_wrong: int, run_id: int | None) -> str:
    """Return what wrong results of a run are, and the command that lists them."""
    return (
        f"a defect of the family or of the compiler, which cost {counted(num_wrong, 'candidate')}; "
        f"all of them: autogemm db list --trials --run {run_id} --status {Status.WRONG_RESULT}"
    )


def _is_recorded(result: TuneResult) -> bool:
    return result.provenance is Provenance.RECORDED
