"""Makes the sampler of a name: the project's own, Optuna's, or one that a package registers."""

import importlib.util
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint

from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler

from autogemm.search.enumerated import EnumeratedSpace
from autogemm.search.names import check_sampler, package_of, registered
from autogemm.search.samplers import (
    EnumeratedSampler,
    ExhaustiveSampler,
    SurrogateSampler,
    UniformSampler,
)
from autogemm.search.stock import StockSampler
from autogemm.support.errors import AutogemmError, UsageError


def _tpe(space: EnumeratedSpace, seed: int) -> EnumeratedSampler:
    return StockSampler(space, seed, TPESampler(seed=seed, constant_liar=True))


def _gp(space: EnumeratedSpace, seed: int) -> EnumeratedSampler:
    _require("torch", "gp")
    return StockSampler(space, seed, GPSampler(seed=seed))


def _cmaes(space: EnumeratedSpace, seed: int) -> EnumeratedSampler:
    _require("cmaes", "cmaes")
    # The margin keeps ranks from freezing at one value (Hamano et al., CMA-ES with Margin, 2022).
    stock = CmaEsSampler(seed=seed, with_margin=True, warn_independent_sampling=False)
    return StockSampler(space, seed, stock, in_generations=True)


def _nsga2(space: EnumeratedSpace, seed: int) -> EnumeratedSampler:
    stock = NSGAIISampler(seed=seed, population_size=20)
    return StockSampler(space, seed, stock, in_generations=True)


def _require(package: str, sampler: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(
            f"the sampler {sampler!r} needs the Python package {package!r}, which is not "
            f"installed; pip install {package}, or choose another --sampler"
        )


_MAKERS: dict[str, Callable[[EnumeratedSpace, int], EnumeratedSampler]] = {
    "surrogate": SurrogateSampler,
    "random": UniformSampler,
    "exhaustive": ExhaustiveSampler,
    "tpe": _tpe,
    "gp": _gp,
    "cmaes": _cmaes,
    "nsga2": _nsga2,
}


def make_sampler(name: str, space: EnumeratedSpace, seed: int) -> EnumeratedSampler:
    """The sampler of that name.

    Raises UsageError for a name that is none, and where a package that it needs is missing.
    """
    check_sampler(name)
    entry_point = registered(name)
    if entry_point is None:
        with warnings.catch_warnings():
            # Optuna warns of what is experimental in samplers that the user chose by name.
            warnings.simplefilter("ignore")
            return _MAKERS[name](space, seed)
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
