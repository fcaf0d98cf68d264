"""The spaces of a run: of the families that fit the problem, the GPU, and what is recorded."""

from collections.abc import Mapping
from dataclasses import dataclass

from autogemm.model.config import Value
from autogemm.space import Family, Space, build_space
from autogemm.support.errors import EmptySpaceError, UsageError
from autogemm.targets import Target
from autogemm.tuning.task.request import SearchedFamily, TuneRequest


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
        """The family of each space."""
        return tuple(space.family for space in self.spaces)

    @property
    def sizes(self) -> tuple[SearchedFamily, ...]:
        """The numbers of configs of each space."""
        return tuple(
            SearchedFamily(space.family.name, len(space), space.raw_count) for space in self.spaces
        )


def spaces_for(request: TuneRequest, target: Target) -> Spaces:
    """The legal configs of each family, on a target that is prepared for the problem.

    Raises EmptySpaceError when no family has any, UsageError when a recording does not fit the
    request, and what `build_space` raises.
    """
    if target.own_family is not None:
        listed = target.own_space(request.problem, request.fix)
        return Spaces((listed,), (), request.fix, target.caveats(listed.family))
    families = sorted(request.families, key=lambda family: family.name)
    fix: Mapping[str, tuple[Value, ...]] = request.fix
    caveats: tuple[str, ...] = ()
    if target.only_family is not None:
        families = [one for one in families if one.name == target.only_family] or families[:1]
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
