"""The names of samplers: the project's own, and those that installed packages register."""

from importlib.metadata import EntryPoint, entry_points

from autogemm.support.errors import UsageError
from autogemm.support.naming import did_you_mean

SAMPLERS = ("surrogate", "random", "tpe", "gp", "cmaes", "nsga2", "exhaustive")
DEFAULT_SAMPLER = "surrogate"
ENTRY_POINTS = "autogemm.samplers"
"""The group in which a package names its factories (docs/extending.md)."""


def sampler_names() -> tuple[str, ...]:
    """All of them, the project's own first."""
    return (*SAMPLERS, *sorted(entry_points(group=ENTRY_POINTS).names - {*SAMPLERS}))


def check_sampler(name: str, kind: str = "sampler", others: tuple[str, ...] = ()) -> None:
    """Raises UsageError for a name that is none; ``others`` are named with those that there are."""
    # The others are looked for among all packages that are installed.
    known = SAMPLERS if name in SAMPLERS else sampler_names()
    if name not in known:
        raise UsageError(
            f"unknown {kind} {name!r}{did_you_mean(name, known)}; known: "
            f"{', '.join((*known, *others))}"
        )


def registered(name: str) -> EntryPoint | None:
    """The entry point of that name; None where it is one of the project's own, or none.

    Raises UsageError where several packages have one.
    """
    if name in SAMPLERS:
        return None
    found = tuple(entry_points(group=ENTRY_POINTS, name=name))
    if len(found) > 1:
        packages = " and ".join(sorted(package_of(one) for one in found))
        raise UsageError(f"{packages} each bring a sampler {name!r}: uninstall all but one")
    return found[0] if found else None


def package_of(entry_point: EntryPoint) -> str:
    """The name of the distribution that brings it."""
    return entry_point.dist.name if entry_point.dist is not None else entry_point.module
