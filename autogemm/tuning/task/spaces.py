"""The spaces of a run: of the families that fit the problem, the GPU, and what is recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from autogemm.model.config import Value
from autogemm.model.problem import Problem
from autogemm.space import Family, Space, build_space
from autogemm.support.errors import EmptySpaceError, UsageError
from autogemm.targets import Target
from autogemm.tuning.task.request import SearchedFamily, TuneRequest


@runtime_checkable
class Replaying(Protocol):
    """A target that knows some configs only (:class:`autogemm.targets.recorded.RecordedTarget`)."""

    @property
    def family(self) -> str:
        """The family whose configs it knows."""

    def restriction(self, family: Family) -> Mapping[str, tuple[Value, ...]]:
        """The values that it knows, by parameter."""

    def caveats(self, family: Family) -> tuple[str, ...]:
        """What a person must know before believing its times, a line each."""


@runtime_checkable
class Listing(Protocol):
    """A target that brings its configs, and neither kernels nor a baseline
    (:class:`autogemm.targets.recorded.ListedTarget`).
    """

    def space(self, problem: Problem, fix: Mapping[str, Sequence[Value]]) -> Space:
        """The configs that it lists."""

    def caveats(self, family: Family) -> tuple[str, ...]:
        """What a person must know before believing its times, a line each."""


@dataclass(frozen=True, slots=True)
class Spaces:
    """Spaces with something in them, by name of their families; ``fix`` narrowed all of them.

    ``left_out`` names the families without any legal config, ``caveats`` are for people to read.
    """

    spaces: tuple[Space, ...]
    left_out: tuple[str, ...]
    fix: Mapping[str, tuple[Value, ...]]
    caveats: tuple[str, ...] = ()

    @property
    def families(self) -> tuple[Family, ...]:
        """Of each space."""
        return tuple(space.family for space in self.spaces)

    @property
    def sizes(self) -> tuple[SearchedFamily, ...]:
        """Of each space."""
        return tuple(
            SearchedFamily(space.family.name, len(space), space.raw_count) for space in self.spaces
        )


def spaces_for(request: TuneRequest, target: Target) -> Spaces:
    """The legal configs of each family, on a target that is prepared for the problem.

    Raises EmptySpaceError when no family has any, UsageError when a recording does not fit the
    request, and what `build_space` raises.
    """
    if isinstance(target, Listing):
        listed = target.space(request.problem, request.fix)
        return Spaces((listed,), (), request.fix, target.caveats(listed.family))
    families = sorted(request.families, key=lambda family: family.name)
    fix: Mapping[str, tuple[Value, ...]] = request.fix
    caveats: tuple[str, ...] = ()
    if isinstance(target, Replaying):
        families = [one for one in families if one.name == target.family] or families[:1]
        fix = _within(target.restriction(families[0]), request.fix)
        caveats = target.caveats(families[0])
    spaces, empty = [], []
    for family in families:
        try:
            spaces.append(build_space(family, request.problem, target.device, fix))
        except EmptySpaceError as error:
            empty.append((family.name, error))
    if not spaces:
        raise empty[0][1]
    return Spaces(tuple(spaces), tuple(name for name, _ in empty), fix, caveats)


def _within(
    known: Mapping[str, tuple[Value, ...]], fix: Mapping[str, tuple[Value, ...]]
) -> dict[str, tuple[Value, ...]]:
    """The user's restriction within the target's. Raises UsageError if nothing is left."""
    both = {}
    for name, values in known.items():
        both[name] = tuple(value for value in fix.get(name, values) if value in values)
        if not both[name]:
            asked, held = (",".join(map(str, v)) for v in (fix[name], values))
            raise UsageError(f"the recording holds {name}={held} only, not {name}={asked}")
    return both
