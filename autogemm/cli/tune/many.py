"""``autogemm tune`` for many problems: a line for each during the run, one table at the end."""

import json
import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from autogemm.cli.output import Form, rows_text
from autogemm.cli.prose import say
from autogemm.cli.rows import entry_row, for_csv, for_json
from autogemm.cli.table import print_table
from autogemm.cli.tune.progress import echo_notice, progress_listener
from autogemm.cli.tune.report import defects_text
from autogemm.model.results.columns import HEADS, RATIO, SPEED, SUSTAINED, Paths, row_of, under
from autogemm.model.results.outcome import Finals, FinalsEntry, Provenance
from autogemm.tuning import Event, Step, Sweep, Swept, TuneRequest

SUSTAINED_X = HEADS["sustained_ratio"]
COLUMNS = (
    *("size", "layout", "dtype", HEADS["time_us"], HEADS["tflops"], HEADS["ratio"]),
    *(HEADS["ratio_of_medians"], "shown", SUSTAINED_X, "baseline"),
    *("family", "run", "trials"),
)
# Without --wide.
SHORT = ("size", "layout", HEADS["time_us"], HEADS["tflops"], HEADS["ratio"], "family")
# Named as in the JSON.
CSV_COLUMNS = (
    *(
        "gpu",
        "provenance",
        "size",
        "layout",
        "dtype",
        "batch",
        "groups",
        "run_id",
        "num_trials",
        "num_wrong",
    ),
    *("known", "family"),
    *("config", *SPEED, *RATIO, "ratio_of_medians", "against_baseline", "confidence", "error"),
    *("energy_mj", "baseline", "baseline_us", "baseline_error", "baseline_energy_mj"),
    *(*SUSTAINED, "seconds", "reason"),
)
_SWEPT: Paths = {
    **under("problem", {"size": "size_label", "layout": "layout", "dtype": "dtype.label"}),
    **under("problem", ("batch", "groups")),
    **under("", ("run_id", "num_trials", "num_wrong", "seconds", "reason")),
    "known": "is_known",
    "confidence": "finals.confidence",
    "against_baseline": "finals.against_baseline",
    "baseline": "finals.baseline.name",
    "baseline_energy_mj": "finals.baseline.energy_mj",
    **under("finals.sustained", SUSTAINED),
    "baseline_us": "finals.baseline.time_us",
    "baseline_error": "finals.baseline.verification.error",
}


@dataclass(slots=True)
class SweepProgress:
    """Shows a sweep on stderr: one line per problem, and on a terminal the search's live line."""

    requests: dict[Any, TuneRequest]
    provenance: Provenance
    quiet: bool
    is_terminal: bool
    _live: ExitStack = field(default_factory=ExitStack)
    _step: Step | None = None

    def on_step(self, step: Step) -> Callable[[Event], None]:
        """Return the listener of one problem's search."""
        self._step = step
        self._live.close()
        if self.is_terminal and not self.quiet and step.doing == "tuning":
            request = self.requests[step.problem]
            return self._live.enter_context(progress_listener(request, self.provenance, False))
        return echo_notice

    def on_swept(self, swept: Swept) -> None:
        """Print a line on a problem that is done."""
        self._live.close()
        if not self.quiet and self._step is not None:
            step = self._step
            place = f"{step.doing} {step.number}/{step.count}"
            say(f"{place} {swept.problem.label}: {outcome_text(swept)}", err=True)


def outcome_text(swept: Swept) -> str:
    """Return how a problem ended, in one line."""
    if swept.finals is None:
        return swept.reason or "no finals"
    winner = swept.finals.winner
    how = f"known, run {swept.run_id}" if swept.is_known else f"run {swept.run_id}"
    speed = swept.problem.tflops(winner.time_us)
    return f"{winner.time_us:.4g} us, {speed:.3g} TFLOP/s, {winner.ratio:.3f} x cuBLAS ({how})"


def print_sweep(sweep: Sweep, device_name: str, provenance: Provenance, database: str) -> None:
    """Print the table, with a line for each problem that has no result."""
    done = [(one, one.finals.winner) for one in sweep.problems if one.finals is not None]
    how = " (recorded)" if provenance is Provenance.RECORDED else ""
    if done:
        title = f"{len(done)} problem{'s' * (len(done) > 1)} on {device_name}{how}"
        rows = [_row(one, one.finals, winner) for one, winner in done if one.finals is not None]
        print_table(rows, COLUMNS, title=title, short=SHORT)
        mean = math.exp(sum(math.log(winner.ratio) for _, winner in done) / len(done))
        say(f"geometric mean: {mean:.3f} x cuBLAS; stored in {database}")
    for one in sweep.problems:
        if one.finals is None:
            say(f"{one.problem.label}: {outcome_text(one)}")
        if one.num_wrong and provenance is Provenance.MEASURED:
            say(f"{one.problem.label}: {defects_text(one.num_wrong, one.run_id)}")


def sweep_as_json(sweep: Sweep, device_name: str, provenance: Provenance, database: str) -> str:
    """Return the results of all problems as JSON, in full precision."""
    return json.dumps(
        {
            "gpu": device_name,
            "provenance": str(provenance),
            "database": database,
            "interrupted": sweep.interrupted,
            "problems": [_facts(one) for one in sweep.problems],
        },
        indent=2,
    )


def sweep_as_csv(sweep: Sweep, device_name: str, provenance: Provenance) -> str:
    """Return a CSV row for each problem; the config is JSON in a cell."""
    where = {"gpu": device_name, "provenance": str(provenance)}
    rows = [where | for_csv(_facts(one)) for one in sweep.problems]
    return rows_text(rows, CSV_COLUMNS, Form.CSV)


def _row(swept: Swept, finals: Finals, winner: FinalsEntry) -> dict[str, Any]:
    problem = swept.problem
    return {
        "size": problem.products_label,
        "layout": str(problem.layout),
        "dtype": str(problem.dtype),
        HEADS["time_us"]: winner.time_us,
        HEADS["tflops"]: problem.tflops(winner.time_us),
        HEADS["ratio"]: winner.ratio,
        **dict(zip(RATIO[1:], winner.interval or (None, None), strict=True)),
        HEADS["ratio_of_medians"]: finals.ratio_of_medians(winner),
        "shown": str(finals.against_baseline),
        SUSTAINED_X: finals.sustained.sustained_ratio if finals.sustained else None,
        "baseline": finals.baseline.name,
        "family": winner.config.family if winner.config is not None else None,
        "run": swept.run_id,
        "trials": swept.num_trials if not swept.is_known else "known",
    }


def _facts(swept: Swept) -> dict[str, Any]:
    """Return the row of a problem, with the names of the JSON of a single one."""
    facts = for_json(row_of(swept, _SWEPT))
    winner: dict[str, Any] = {}
    if swept.finals is not None:
        winner = for_json(entry_row(swept.finals.winner, swept.finals, swept.problem))
    named = (name for name in CSV_COLUMNS if name not in ("gpu", "provenance"))
    return {name: facts.get(name, winner.get(name)) for name in named}
