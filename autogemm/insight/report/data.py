"""Data of a page's plots as plain JSON: columns, so that 10,000 trials stay small."""

from typing import Any

from autogemm.insight.analysis import Comparison, RunTrials
from autogemm.insight.analysis.comparison import role_of, roofs
from autogemm.insight.analysis.trials import varied
from autogemm.model.config import Value

FAMILY = "family"
# In place of a parameter that a config's family does not have.
NOT_THERE = "-"


def run_data(trials: RunTrials, shares: dict[str, float]) -> dict[str, Any]:
    """The trials that ran: number, seconds, merit, and each parameter's value by its position."""
    measured = list(trials.measured())
    configs = [trial.outcome.config for trial, _ in measured]
    values = varied([(config, 0.0) for config in configs])
    if len({config.family for config in configs}) > 1:
        values = {FAMILY: tuple(sorted({config.family for config in configs}))} | values
    rows: list[dict[str, Value]] = [
        {FAMILY: config.family, **config.as_dict()} for config in configs
    ]
    return {
        "unit": trials.unit,
        "moreIsBetter": trials.more_is_better,
        "isRecorded": trials.is_recorded,
        "baseline": _short(trials.baseline_merit),
        "numbers": [trial.number for trial, _ in measured],
        "seconds": [round(trials.seconds(trial), 2) for trial, _ in measured],
        "merits": [_short(merit) for _, merit in measured],
        "parameters": [_parameter(name, known, rows) for name, known in values.items()],
        "importance": [[name, _short(share)] for name, share in shares.items()],
    }


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Kernels that were timed, and the roofs of their GPU."""
    slopes, ceilings = roofs(comparison.device, comparison.ceilings)
    return {
        "sizes": comparison.sizes(),
        "timed": [
            {
                "kernel": one.kernel,
                "role": role_of(one),
                "size": one.problem.size_label,
                "dtype": one.problem.dtype.label,
                "time_us": _short(one.metrics.time_us),
                "gflops": _short(one.metrics.gflops),
                "percent": _short(one.metrics.percent_of_cublas),
                "intensity": _short(one.metrics.flop_per_byte),
                "roof": _short(one.metrics.percent_of_roof),
            }
            for one in comparison.timed()
        ],
        "slopes": [[slope.name, slope.tb_s] for slope in slopes],
        "ceilings": [[ceiling.name, ceiling.tflops] for ceiling in ceilings],
    }


def _parameter(name: str, known: tuple[Value, ...], rows: list[dict[str, Value]]) -> dict[str, Any]:
    values = list(known)
    if any(name not in row for row in rows):
        values.append(NOT_THERE)
    places = {value: place for place, value in enumerate(values)}
    return {
        "name": name,
        "values": values,
        "codes": [places[row.get(name, NOT_THERE)] for row in rows],
    }


def _short(value: float | None) -> float | None:
    """Five significant digits: what a plot can show."""
    return None if value is None else float(f"{value:.5g}")
