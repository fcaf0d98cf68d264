"""What a tuning run found: a table and a few lines for people, JSON for scripts."""

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import click

from autogemm.certificate import Certificate
from autogemm.cli.output import print_table
from autogemm.config import label, shared_values
from autogemm.outcome import (
    CONFIDENCE,
    Finals,
    FinalsEntry,
    Outcome,
    Provenance,
    StopRule,
    Verification,
)
from autogemm.tuning import TuneResult

COLUMNS = (
    *("#", "family", "config", "time us", "TFLOP/s", "x cuBLAS", "interval", "spread %"),
    *("energy mJ", "error", "registers", "tie"),
)
# What a person calls the rules that end a search.
STOPPED_BY = {
    StopRule.TRIALS: "all trials done",
    StopRule.BUDGET: "the time was up",
    StopRule.RATIO: "the ratio was reached",
    StopRule.GAIN: "too little gain expected",
    StopRule.USED_UP: "no config left",
    StopRule.INTERRUPTED: "interrupted",
}


def print_result(result: TuneResult, database: str, next_command: str | None) -> None:
    """The finals' table, the winner in words, and what to do next if anything; on stdout."""
    if result.finals is not None:
        _print_finals(result, result.finals)
    _print_best(result)
    click.echo(_search_line(result))
    if result.best is None:
        return
    click.echo(f"stored: run {result.run_id} in {database}")
    if next_command is not None and not result.interrupted:
        click.echo(f"next: {next_command}")


def _print_finals(result: TuneResult, finals: Finals) -> None:
    configs = [entry.config for entry in finals.entries if entry.config is not None]
    shared = shared_values(configs)
    rows = [
        _row(str(place), entry, result, finals, shared)
        for place, entry in enumerate(finals.entries, 1)
    ]
    rows.append(_row("", finals.baseline, result, finals, shared) | {"interval": None})
    how = "recorded" if _is_recorded(result) else f"{finals.rounds} interleaved rounds"
    title = f"{result.problem.label} on {result.device_name}: finals, {how}"
    # Neither takes room where it says nothing.
    superfluous = {"family"} if len(result.families) == 1 else set()
    superfluous |= {"energy mJ"} if finals.baseline.energy_mj is None else set()
    superfluous |= {"error"} if result.max_error is None else set()
    print_table(rows, [name for name in COLUMNS if name not in superfluous], title=title)
    if shared:
        click.echo(f"all of them: {label(shared.items())}")
    if finals.confidence is not None and finals.confidence < CONFIDENCE:
        click.echo(
            f"intervals are the extremes of {finals.rounds} rounds: they hold the true ratio with "
            f"{100 * finals.confidence:.3g} %, not {100 * CONFIDENCE:.3g} %"
        )


def _row(
    place: str, entry: FinalsEntry, result: TuneResult, finals: Finals, shared: Collection[str]
) -> dict[str, Any]:
    spread = finals.spread_of(entry)
    checked = entry.verification
    config = entry.name
    if entry.config is not None:
        own = label(pair for pair in entry.config if pair[0] not in shared)
        config = own or "(the one)"
    return {
        "#": place,
        "family": entry.config.family if entry.config is not None else None,
        "config": config,
        "time us": entry.median_us,
        "TFLOP/s": result.problem.tflops(entry.median_us),
        "x cuBLAS": f"{entry.ratio:.3f}",
        "interval": _interval(entry),
        "spread %": None if spread is None else f"{100 * spread:.2f}",
        "energy mJ": entry.energy_mj,
        "error": None if checked is None else f"{checked.relative_frobenius:.2e}",
        "registers": entry.registers,
        "tie": "tied" if entry.tied else None,
    }


def _interval(entry: FinalsEntry) -> str | None:
    if entry.interval is None:
        return None
    low, high = entry.interval
    return f"{low:.3f}..{high:.3f}"


def _print_best(result: TuneResult) -> None:
    finals = result.finals
    if finals is None:
        if result.best is not None and result.best.time_us is not None:
            click.echo(_provisional_line(result, result.best, result.best.time_us))
        return
    winner = finals.winner
    assert winner.config is not None, "only the baseline has no config"
    interval = f" ({_interval(winner)})" if _interval(winner) else ""
    speed = result.problem.tflops(winner.median_us)
    remarks = [
        f"{winner.median_us:.4g} us, {speed:.4g} TFLOP/s, {winner.ratio:.3f} x cuBLAS{interval}"
    ]
    if winner.energy_mj is not None and finals.baseline.energy_mj is not None:
        share = winner.energy_mj / finals.baseline.energy_mj
        remarks.append(f"{winner.energy_mj:.4g} mJ, {share:.3f} of cuBLAS's energy")
    if finals.baseline.tied:
        remarks.append("no difference to cuBLAS was shown")
    if _is_recorded(result):
        remarks.append(f"recorded on {result.device_name}")
    family = f"{winner.config.family}: " if len(result.families) > 1 else ""
    click.echo(f"winner: {family}{winner.config}")
    click.echo(f"  {'; '.join(remarks)}")
    if finals.ties:
        click.echo(f"  {ties_line(finals, _is_recorded(result))}")
    if winner.verification is not None:
        baseline = finals.baseline.verification
        beside = f"; cuBLAS: {_errors(baseline)}" if baseline is not None else ""
        if result.max_error is not None:
            beside += f"; at most {result.max_error:.3g} was asked for"
        click.echo(f"  {_errors(winner.verification)}{beside}")
    for line in _checked_lines(result):
        click.echo(f"  {line}")


def _checked_lines(result: TuneResult) -> list[str]:
    """The winner's certificate, and who was faster but is no winner."""
    lines = []
    if result.certificate is not None:
        lines = [f"checked: {check.line}" for check in result.certificate.checks]
    if result.finals is not None:
        lines += [f"no winner: {lost.config}: {lost.reason}" for lost in result.finals.disqualified]
    return lines


def ties_line(finals: Finals, is_recorded: bool) -> str:
    """How many share the first place, and what chose among them."""
    count = len(finals.ties)
    others = "another one is tied with it" if count == 1 else f"{count} others are tied with it"
    if is_recorded:
        return f"{others}: the recorded times are the same"
    rounds = len(finals.winner.samples_mj) or finals.rounds
    return (
        f"{others}: no difference was shown in {rounds} rounds; among equals the smaller spread "
        "counts, then fewer registers"
    )


def _provisional_line(result: TuneResult, best: Outcome, time_us: float) -> str:
    how = "recorded" if _is_recorded(result) else "without finals"
    speed = result.problem.tflops(time_us)
    what = "best so far" if result.interrupted else "best"
    return f"{what} ({how}): {best.config}\n  {time_us:.4g} us, {speed:.4g} TFLOP/s"


def _errors(verification: Verification) -> str:
    return (
        f"largest error {verification.max_error_ratio:.2g} of its bound, "
        f"relative Frobenius {verification.relative_frobenius:.2g}"
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
    busy = "" if _is_recorded(result) else f", card busy {100 * result.gpu_busy:.0f} % of it"
    return (
        f"search: {result.num_trials} trials{of_them} of {result.num_legal} legal configs in "
        f"{result.search_s:.1f} s, {result.trials_per_s:.1f}/s{busy}: {counts or 'none'}; "
        f"{STOPPED_BY[result.stopped_by]}; finals {result.finals_s:.1f} s"
    )


def _is_recorded(result: TuneResult) -> bool:
    return result.provenance is Provenance.RECORDED


def result_as_json(result: TuneResult, database: str) -> str:
    """The whole result but the single trials, which are in the database."""
    problem = result.problem
    best = result.best
    return json.dumps(
        {
            "run_id": result.run_id,
            "database": database,
            "problem": problem.label,
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "layout": str(problem.layout),
            "dtype": str(problem.dtype),
            "gpu": result.device_name,
            "provenance": str(result.provenance),
            "objective": str(result.objective),
            "max_error": result.max_error,
            "stopped_by": str(result.stopped_by),
            "interrupted": result.interrupted,
            "trials": result.num_trials,
            "resumed": result.num_resumed,
            "reused": result.num_reused,
            "pruned": result.num_pruned,
            "legal_configs": result.num_legal,
            "families": [
                {
                    "family": family.name,
                    "legal_configs": family.num_legal,
                    "trials": len(result.of_family(family.name)),
                }
                for family in result.families
            ],
            "counts": {str(status): count for status, count in result.counts.items()},
            "search_s": result.search_s,
            "finals_s": result.finals_s,
            "trials_per_s": result.trials_per_s,
            "gpu_busy": result.gpu_busy,
            "best": _outcome_as_dict(result, best) if best is not None else None,
            "finals": _finals_as_dict(result, result.finals) if result.finals else None,
            "certificate": _certificate_as_dict(result.certificate),
        },
        indent=2,
    )


def _outcome_as_dict(result: TuneResult, outcome: Outcome) -> dict[str, Any]:
    assert outcome.time_us is not None, "the best outcome has a time"
    measurement = outcome.measurement
    return {
        "family": outcome.config.family,
        "config": outcome.config.as_dict(),
        "kernel_sha256": outcome.kernel_sha256,
        "time_us": outcome.time_us,
        "tflops": result.problem.tflops(outcome.time_us),
        "energy_mj": measurement.energy_mj if measurement is not None else None,
    }


def _finals_as_dict(result: TuneResult, finals: Finals) -> dict[str, Any]:
    return {
        "rounds": finals.rounds,
        "confidence": finals.confidence,
        "ties": len(finals.ties),
        "baseline": _entry_as_dict(result, finals, finals.baseline),
        "entries": [_entry_as_dict(result, finals, entry) for entry in finals.entries],
        "disqualified": [
            {"config": lost.config.as_dict(), "reason": lost.reason}
            | {"kernel_sha256": lost.kernel_sha256}
            for lost in finals.disqualified
        ],
    }


def _certificate_as_dict(certificate: Certificate | None) -> dict[str, Any] | None:
    if certificate is None:
        return None
    return {
        "verdict": certificate.verdict,
        "made_at": certificate.made_at.isoformat(),
        "checks": [asdict(check) for check in certificate.checks],
    }


def _entry_as_dict(result: TuneResult, finals: Finals, entry: FinalsEntry) -> dict[str, Any]:
    checked = entry.verification
    return {
        "name": entry.name,
        "family": entry.config.family if entry.config is not None else None,
        "config": entry.config.as_dict() if entry.config is not None else None,
        "kernel_sha256": entry.kernel_sha256,
        "time_us": entry.median_us,
        "tflops": result.problem.tflops(entry.median_us),
        "ratio": entry.ratio,
        "ratio_low": entry.interval[0] if entry.interval else None,
        "ratio_high": entry.interval[1] if entry.interval else None,
        "tied": entry.tied,
        "spread": finals.spread_of(entry),
        "registers": entry.registers,
        "energy_mj": entry.energy_mj,
        "max_error_ratio": checked.max_error_ratio if checked else None,
        "relative_frobenius": checked.relative_frobenius if checked else None,
    }
