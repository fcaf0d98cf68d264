"""What a tuning run found, for scripts: JSON with all of it, CSV with the finals."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from autogemm.cli.output import Form, rows_text
from autogemm.model.certificate import Certificate
from autogemm.model.outcome import Finals, FinalsEntry, Outcome
from autogemm.tuning import TuneResult

# As in the JSON; ``place`` is empty for the baseline.
COLUMNS = (
    *("run_id", "problem", "m", "n", "k", "layout", "dtype", "gpu", "provenance", "place"),
    *("name", "family", "config", "kernel_sha256", "time_us", "tflops"),
    *("ratio", "ratio_low", "ratio_high", "confidence", "tied", "spread", "rounds"),
    *("registers", "energy_mj", "max_error_ratio", "relative_frobenius"),
)


def result_as_json(result: TuneResult, database: str) -> str:
    """The whole result but the single trials, which are in the database."""
    best = result.best
    return json.dumps(
        {
            "run_id": result.run_id,
            "database": database,
            **_where(result),
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


def result_as_csv(result: TuneResult) -> str:
    """A row for each finalist, the winner first, and one for the baseline.

    Without finals the best so far is the only row.
    """
    return rows_text(list(_rows(result)), COLUMNS, Form.CSV)


def _rows(result: TuneResult) -> Iterator[dict[str, Any]]:
    shared = {"run_id": result.run_id, **_where(result)}
    finals = result.finals
    if finals is not None:
        shared |= {"rounds": finals.rounds, "confidence": finals.confidence}
        for place, entry in enumerate(finals.entries, 1):
            yield shared | _in_a_cell(_entry_as_dict(result, finals, entry)) | {"place": place}
        yield shared | _in_a_cell(_entry_as_dict(result, finals, finals.baseline))
    elif result.best is not None:
        yield shared | _in_a_cell(_outcome_as_dict(result, result.best)) | {"place": 1}


def _in_a_cell(facts: dict[str, Any]) -> dict[str, Any]:
    """With the config as JSON."""
    config = facts["config"]
    return {**facts, "config": json.dumps(config) if config is not None else None}


def _where(result: TuneResult) -> dict[str, Any]:
    problem = result.problem
    return {
        "problem": problem.label,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "layout": str(problem.layout),
        "dtype": str(problem.dtype),
        "gpu": result.device_name,
        "provenance": str(result.provenance),
    }


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
