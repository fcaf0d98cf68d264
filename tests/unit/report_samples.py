"""Runs to report on, made up without a database."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from store_samples import SPEC, entry, finals

from autogemm.insight.analysis import RunTrials
from autogemm.model.config import Config
from autogemm.model.hardware.device import Device
from autogemm.model.results.outcome import Measurement, Outcome, Status
from autogemm.store import RunRow, RunState, TrialRow

BEGAN = datetime(2026, 11, 21, 9, tzinfo=UTC)
# As many parameters and values as sgemm_simt has, or so.
PARAMETERS = {f"P{place:02}": (1, 2, 4, 8, "rows", "quads") for place in range(20)}


def many_trials(number: int, device: Device = SPEC.device, family: str = "sgemm_simt") -> RunTrials:
    """That many configs drawn at random; P00 decides, and one in a hundred crashes.

    P01 has the family's name among its values: whatever a family's name may be, a value may be.
    """
    draw = random.Random(number)
    spec = replace(SPEC, device=device, families=(family,))
    rows = []
    for place in range(number):
        values = {name: draw.choice(of) for name, of in PARAMETERS.items()}
        config = Config.of(family, values | ({"P01": family} if place % 9 == 0 else {}))
        rank = PARAMETERS["P00"].index(values["P00"])
        outcome = Outcome(
            config,
            Status.OK,
            measurement=Measurement((2600.0 + 200.0 * rank + draw.random(),), spec.provenance),
        )
        if place % 100 == 99:
            outcome = Outcome(config, Status.CRASHED, f"illegal address in {family}")
        rows.append(_row(place, outcome, spec.device))
    run = RunRow(
        *(1, spec, RunState.FINISHED, BEGAN, None, None, number, number - number // 100, 2600.0),
        finals(entry(128, 2600.0, 2610.0, ratio=1.02), entry(64, 2700.0, 2710.0, ratio=0.98)),
    )
    trials = RunTrials(run, tuple(rows))
    assert all(one.number < other.number for one, other in pairwise(trials.trials))
    return trials


def _row(place: int, outcome: Outcome, device: Device) -> TrialRow:
    ended = BEGAN + timedelta(seconds=0.07 * place)
    return TrialRow(
        *(place, 1, place, outcome, None, SPEC.problem, device, SPEC.environment),
        *(SPEC.provenance, SPEC.l2, ended),
    )
