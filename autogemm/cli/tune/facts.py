"""Results of a tuning run for scripts: JSON with all of it, CSV with the finals."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from autogemm.cli.output import Form, rows_text
from autogemm.cli.rows import entry_row, for_csv, for_json
from autogemm.model.results.certificate import Certificate
from autogemm.model.results.columns import CONFIG, ERRORS, SUSTAINED, Paths, row_of, under
from autogemm.model.results.outcome import Finals, FinalsEntry, Outcome
from autogemm.tuning import TuneResult

# As in the JSON; ``place`` is empty for the baseline.
COLUMNS = (
    *("run_id", "problem", "m", "n", "k", "layout", "dtype", "gpu", "provenance", "place"),
    *("name", "family", "config", "kernel_sha256", "time_us", "tflops"),
    *("ratio", "ratio_low", "ratio_high", "ratio_of_medians", "confidence", "tied", "spread"),
    "rounds",
    *("registers", "energy_mj", *ERRORS, "samples_us", "samples_mj"),
)
_WHERE: Paths = {
    **under("problem", {"problem": "label", "m": "m", "n": "n", "k": "k", "layout": "layout"}),
    "dtype": "problem.dtype.label",
    "gpu": "device_name",
    "provenance": "provenance",
}
_SEARCH = under(
    "",
    (
        *("objective", "max_error", "stopped_by", "interrupted", "num_trials", "num_resumed"),
        *("num_reused", "num_pruned", "num_legal"),
    ),
)
_SUSTAINED = under("", SUSTAINED)
_SPEEDS = ("search_s", "finals_s", "trials_per_s", "gpu_busy")
_OUTCOME: Paths = {
    **CONFIG,
    **under("", ("kernel_sha256", "time_us")),
    "energy_mj": "measurement.energy_mj",
}


def result_as_json(result: TuneResult, database: str) -> str:
    """Return the whole result as JSON, without the single trials, which are in the database."""
    best = result.best
    return json.dumps(
        {
            "run_id": result.run_id,
            "database": database,
            **_where(result),
            **for_json(row_of(result, _SEARCH)),
            "families": [
                {
                    "family": family.name,
                    "num_legal": family.num_legal,
                    "num_trials": len(result.of_family(family.name)),
                }
                for family in result.families
            ],
            "counts": {str(status): count for status, count in result.counts.items()},
            **{name: getattr(result, name) for name in _SPEEDS},
            "trials_by_gpu": result.trials_by_gpu,
            "ms_by_phase": result.ms_by_phase,
            "best": _outcome_as_dict(result, best) if best is not None else None,
            "finals": _finals_as_dict(result, result.finals) if result.finals else None,
            "certificate": _certificate_as_dict(result.certificate),
        },
        indent=2,
    )


def result_as_csv(result: TuneResult) -> str:
    """Return a CSV row for each finalist, the winner first, and one for the baseline.

    Without finals the best so far is the only row.
    """
    return rows_text(list(_rows(result)), COLUMNS, Form.CSV)


def _rows(result: TuneResult) -> Iterator[dict[str, Any]]:
    shared = {"run_id": result.run_id, **_where(result)}
    finals = result.finals
    if finals is not None:
        shared |= {"rounds": finals.rounds, "confidence": finals.confidence}
        for place, entry in enumerate(finals.entries, 1):
            yield shared | for_csv(_entry_as_dict(result, finals, entry)) | {"place": place}
        yield shared | for_csv(_entry_as_dict(result, finals, finals.baseline))
    elif result.best is not None:
        yield shared | for_csv(_outcome_as_dict(result, result.best)) | {"place": 1}


def _where(result: TuneResult) -> dict[str, Any]:
    return for_json(row_of(result, _WHERE))


def _outcome_as_dict(result: TuneResult, outcome: Outcome) -> dict[str, Any]:
    assert outcome.time_us is not None, "the best outcome has a time"
    return {**for_json(row_of(outcome, _OUTCOME)), "tflops": result.problem.tflops(outcome.time_us)}


def _finals_as_dict(result: TuneResult, finals: Finals) -> dict[str, Any]:
    return {
        "rounds": finals.rounds,
        "confidence": finals.confidence,
        "num_ties": len(finals.ties),
        "against_baseline": str(finals.against_baseline),
        "baseline": _entry_as_dict(result, finals, finals.baseline),
        "entries": [_entry_as_dict(result, finals, entry) for entry in finals.entries],
        "calls": [asdict(call) | {"time_us": call.time_us} for call in finals.calls],
        "sustained": for_json(row_of(finals.sustained, _SUSTAINED)) if finals.sustained else None,
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
    samples = {"samples_us": entry.samples_us, "samples_mj": entry.samples_mj}
    return for_json(entry_row(entry, finals, result.problem) | samples)
