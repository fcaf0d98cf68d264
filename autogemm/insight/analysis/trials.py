"""The trials of a run as a person looks at them: how good each was, and how the best got better."""

from collections.abc import Iterator
from dataclasses import dataclass

from autogemm.model.config import Config, Value
from autogemm.model.results.outcome import FinalsEntry, Objective, Outcome, Provenance, Status
from autogemm.store import BestQuery, RunRow, Store, TrialRow
from autogemm.support.errors import NotFoundError, UsageError

UNITS = {
    Objective.TIME: "TFLOP/s",
    Objective.ENERGY: "energy of one GEMM, mJ",
    Objective.EDP: "energy x time, mJ us",
}


@dataclass(frozen=True, slots=True)
class Step:
    """The best so far after a trial: ``seconds`` since the run began, pauses included."""

    number: int
    seconds: float
    merit: float


@dataclass(frozen=True, slots=True)
class RunTrials:
    """A run with its trials in the order of their numbers.

    ``merit`` is what figures show: TFLOP/s, of which more is better, or for the other objectives
    what is minimised.
    """

    run: RunRow
    trials: tuple[TrialRow, ...]

    @property
    def unit(self) -> str:
        """The unit of ``merit``."""
        return UNITS[self.run.spec.objective]

    @property
    def more_is_better(self) -> bool:
        """Whether a larger merit is the better one."""
        return self.run.spec.objective is Objective.TIME

    @property
    def is_recorded(self) -> bool:
        """The times were read from a recording."""
        return self.run.spec.provenance is Provenance.RECORDED

    @property
    def caption(self) -> str:
        """Problem, GPU, run, date, and where its times come from."""
        spec = self.run.spec
        return (
            f"{spec.problem.label} on {spec.device.name}, run {self.run.run_id}, "
            f"{self.run.started_at:%Y-%m-%d}, {spec.provenance} times"
        )

    def merit(self, outcome: Outcome) -> float | None:
        """Return the merit; None for a trial without a time, or without the energy to minimise."""
        cost = outcome.cost(self.run.spec.objective)
        if cost is None or not self.more_is_better:
            return cost
        return self.run.spec.problem.tflops(cost)

    @property
    def baseline_merit(self) -> float | None:
        """The merit of cuBLAS in the finals, None without them."""
        finals = self.run.finals
        return None if finals is None else self.entry_merit(finals.baseline)

    def entry_merit(self, entry: FinalsEntry) -> float | None:
        """Return the merit of a kernel in the finals."""
        if self.more_is_better:
            return self.run.spec.problem.tflops(entry.time_us)
        if entry.energy_mj is None:
            return None
        is_energy = self.run.spec.objective is Objective.ENERGY
        return entry.energy_mj * (1.0 if is_energy else entry.time_us)

    def merits(self) -> list[float]:
        """Return the merits of all trials that have one, in their order."""
        return [merit for _, merit in self.measured()]

    def measured(self) -> Iterator[tuple[TrialRow, float]]:
        """The trials that have a merit, with it."""
        for trial in self.trials:
            merit = self.merit(trial.outcome)
            if merit is not None:
                yield trial, merit

    def seconds(self, trial: TrialRow) -> float:
        """Return the seconds from the beginning of the run to the end of this trial."""
        return (trial.finished_at - self.run.started_at).total_seconds()

    def better(self, one: float, other: float) -> bool:
        """Whether the one merit beats the other."""
        return one > other if self.more_is_better else one < other

    def best_so_far(self) -> list[Step]:
        """Return a step for each trial that beat all before it."""
        steps: list[Step] = []
        for trial, merit in self.measured():
            if not steps or self.better(merit, steps[-1].merit):
                steps.append(Step(trial.number, self.seconds(trial), merit))
        return steps

    def counts(self) -> dict[Status, int]:
        """Return the number of trials for each status that occurred."""
        ends = [trial.outcome.status for trial in self.trials]
        return {status: ends.count(status) for status in Status if status in ends}

    def family(self) -> str:
        """The family with the best trial; the first of the run if none ran."""
        ranked = sorted(self.measured(), key=lambda pair: pair[1], reverse=self.more_is_better)
        return ranked[0][0].outcome.config.family if ranked else self.run.spec.families[0]

    def configs_of(self, family: str) -> list[tuple[Config, float]]:
        """The family's configs that have a merit, with it."""
        return [
            (trial.outcome.config, merit)
            for trial, merit in self.measured()
            if trial.outcome.config.family == family
        ]


def read_run(store: Store, query: BestQuery) -> RunTrials:
    """The newest run that matches and has a trial. Raises NotFoundError."""
    run = store.newest_run(query, tried=True)
    if run is None:
        raise NotFoundError(
            "no run with trials matches: autogemm db list shows the runs, autogemm tune makes one"
        )
    rows = store.trial_rows(BestQuery(run_id=run.run_id, family=query.family))
    return RunTrials(run, tuple(sorted(rows, key=lambda row: row.number)))


@dataclass(frozen=True, slots=True)
class Grid:
    """The best merit for each pair of values of two parameters, ``best[row of y][column of x]``.

    None where no config with that pair was tried, or none of them ran.
    """

    x: str
    y: str
    x_values: tuple[Value, ...]
    y_values: tuple[Value, ...]
    best: tuple[tuple[float | None, ...], ...]


def varied(tried: list[tuple[Config, float]]) -> dict[str, tuple[Value, ...]]:
    """Each parameter that has more than one value here, with its values in order."""
    values: dict[str, set[Value]] = {}
    for config, _ in tried:
        for name, value in config:
            values.setdefault(name, set()).add(value)
    return {
        name: tuple(sorted(found, key=lambda value: (isinstance(value, str), value)))
        for name, found in values.items()
        if len(found) > 1
    }


def importance(trials: RunTrials, family: str) -> dict[str, float]:
    """`autogemm.search.importance.parameter_importance` of the family's trials."""
    from autogemm.search import parameter_importance

    sign = -1.0 if trials.more_is_better else 1.0
    return parameter_importance(
        [(config, sign * merit) for config, merit in trials.configs_of(family)]
    )


def grid(trials: RunTrials, family: str, x: str | None = None, y: str | None = None) -> Grid:
    """The best of each pair of values. Without names, of the two parameters that matter most.

    Raises UsageError for a parameter that the family's trials do not vary, or if they vary fewer
    than two.
    """
    tried = trials.configs_of(family)
    values = varied(tried)
    for name in (x, y):
        if name is not None and name not in values:
            raise UsageError(
                f"the trials of {family} do not vary {name!r}; they vary: {', '.join(values)}"
            )
    by_weight = [*importance(trials, family), *values]
    rest = [name for name in dict.fromkeys(by_weight) if name not in (x, y)]
    names = [name or (rest.pop(0) if rest else None) for name in (x, y)]
    across, up = names
    if across is None or up is None or across == up:
        raise UsageError(
            f"a heat map needs two parameters with several values each, the trials of {family} "
            f"vary {', '.join(values) or 'none'}"
        )
    best: dict[tuple[Value, Value], float] = {}
    for config, merit in tried:
        pair = (config[across], config[up])
        if pair not in best or trials.better(merit, best[pair]):
            best[pair] = merit
    return Grid(
        across,
        up,
        values[across],
        values[up],
        tuple(tuple(best.get((one, other)) for one in values[across]) for other in values[up]),
    )
