"""What the trials of a run say of its parameters."""

from dataclasses import dataclass

from autogemm.insight.analysis.trials import RunTrials
from autogemm.model.config import Config, Value
from autogemm.support.errors import UsageError


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
