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

_OWN: dict[str, Callable[[EnumeratedSpace, int], EnumeratedSampler]] = {
    "surrogate": SurrogateSampler,
    "random": UniformSampler,
    "exhaustive": ExhaustiveSampler,
}
_STOCK: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed, constant_liar=True),
    "gp": lambda seed: GPSampler(seed=seed),
    # The margin keeps ranks from freezing at one value (Hamano et al., CMA-ES with Margin, 2022).
    "cmaes": lambda seed: CmaEsSampler(
        seed=seed, with_margin=True, warn_independent_sampling=False
    ),
    "nsga2": lambda seed: NSGAIISampler(seed=seed, population_size=20),
}
# Samplers that learn from trials of their own only.
_IN_GENERATIONS = ("cmaes", "nsga2")
# The Python packages that samplers need.
_NEEDED = {"gp": "torch", "cmaes": "cmaes"}


def make_sampler(name: str, space: EnumeratedSpace, seed: int) -> EnumeratedSampler:
    """The sampler of that name.

    Raises UsageError for a name that is none, and where a package that it needs is missing.
    """
    check_sampler(name)
    entry_point = registered(name)
    if entry_point is not None:
        made = _made_elsewhere(entry_point, space, seed)
        return made if isinstance(made, EnumeratedSampler) else StockSampler(space, seed, made)
    if name in _OWN:
        return _OWN[name](space, seed)
    package = _NEEDED.get(name)
    if package and importlib.util.find_spec(package) is None:
        raise UsageError(
            f"the sampler {name!r} needs the Python package {package!r}, which is not "
            f"installed; pip install {package}, or choose another --sampler"
        )
    with warnings.catch_warnings():
        # Optuna warns of what is experimental in samplers that the user chose by name.
        warnings.simplefilter("ignore")
        return StockSampler(space, seed, _STOCK[name](seed), name in _IN_GENERATIONS)


def _made_elsewhere(entry_point: EntryPoint, space: EnumeratedSpace, seed: int) -> BaseSampler:
    of = f"the sampler {entry_point.name!r} of the package {package_of(entry_point)}"
    try:
        made = entry_point.load()(space, seed)
    except AutogemmError:
        raise
    # Code of other packages may raise any exception.
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UsageError(f"{of} cannot be made ({what}); choose another --sampler") from error
    if not isinstance(made, BaseSampler):
        raise UsageError(
            f"{of} is a {type(made).__name__}: it must be an optuna.samplers.BaseSampler or an "
            "autogemm.search.EnumeratedSampler"
        )
    return made
