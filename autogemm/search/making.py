"""Makes the sampler of a name: the project's own, Optuna's, or one that a package registers."""

from collections.abc import Callable
from importlib.metadata import EntryPoint

from optuna.samplers import BaseSampler

from autogemm.search.enumerated import EnumeratedSpace
from autogemm.search.names import check_sampler, package_of, registered
from autogemm.search.samplers import (
    EnumeratedSampler,
    ExhaustiveSampler,
    SurrogateSampler,
    UniformSampler,
)
from autogemm.search.stock import StockSampler, make_stock_sampler
from autogemm.support.errors import AutogemmError, UsageError

_MAKERS: dict[str, Callable[[EnumeratedSpace, int], EnumeratedSampler]] = {
    "surrogate": SurrogateSampler,
    "random": UniformSampler,
    "exhaustive": ExhaustiveSampler,
}


def make_sampler(name: str, space: EnumeratedSpace, seed: int) -> EnumeratedSampler:
    """The sampler of that name.

    Raises UsageError for a name that is none, and where a package that it needs is missing.
    """
    check_sampler(name)
    if name in _MAKERS:
        return _MAKERS[name](space, seed)
    entry_point = registered(name)
    if entry_point is None:
        return make_stock_sampler(name, space, seed)
    made = _made_elsewhere(entry_point, space, seed)
    return made if isinstance(made, EnumeratedSampler) else StockSampler(space, seed, made)


def _made_elsewhere(entry_point: EntryPoint, space: EnumeratedSpace, seed: int) -> BaseSampler:
    of = f"the sampler {entry_point.name!r} of the package {package_of(entry_point)}"
    try:
        made = entry_point.load()(space, seed)
    except AutogemmError:
        raise
    # Whatever a stranger's code raises is not ours to know.
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(f"{of} cannot be made ({what}); choose another --sampler") from error
    if not isinstance(made, BaseSampler):
        raise UsageError(
            f"{of} is a {type(made).__name__}: it must be an optuna.samplers.BaseSampler or an "
            "autogemm.search.EnumeratedSampler"
        )
    return made
