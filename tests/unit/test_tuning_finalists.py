"""The finalists are the best of the search, and some near the best that are unlike."""

from types import SimpleNamespace
from typing import Any

import pytest

from autogemm.model.config import Config
from autogemm.model.results.outcome import Measurement, Outcome, Provenance, Status
from autogemm.support.errors import KernelCompileError
from autogemm.tuning.finals import finalists


class Builder:
    """Renders a config's label without ECHO; what is in ``broken`` does not compile any more."""

    def __init__(self, broken: frozenset[int]) -> None:
        self._broken = broken

    def render(self, config: Config) -> Any:
        values = {name: value for name, value in config.as_dict().items() if name != "ECHO"}
        return SimpleNamespace(config=config, sha256=f"{config.family} {values}")

    def start(self, source: Any) -> Any:
        def candidate() -> Any:
            if source.config["BM"] in self._broken:
                raise KernelCompileError("it does not compile")
            return source

        return SimpleNamespace(candidate=candidate)


def outcome(time_us: float, family: str = "one", **values: int) -> Outcome:
    measurement = Measurement((time_us,), Provenance.MEASURED)
    return Outcome(Config.of(family, dict(values)), Status.OK, measurement=measurement)


# The six best differ in GROUP_M alone.
SIX = [outcome(100.0 + i / 10, BM=128, BN=256, GROUP_M=i, ECHO=0) for i in range(6)]
UNLIKE = outcome(102.5, BM=256, BN=128, GROUP_M=1, ECHO=0)
MORE_UNLIKE = outcome(102.9, "two", BM=8, BN=8, GROUP_M=1, ECHO=0)
TOO_SLOW = outcome(103.1, BM=64, BN=64, GROUP_M=9, ECHO=9)
TWIN = outcome(100.0, BM=128, BN=256, GROUP_M=0, ECHO=1)
ALL = [*reversed(SIX), UNLIKE, TOO_SLOW]


@pytest.mark.parametrize(
    ("outcomes", "places", "expected"),
    [
        # One and two places are for the best.
        (ALL, 1, SIX[:1]),
        (ALL, 2, SIX[:2]),
        # The last of three places is for the one least like the others, and the last two of six.
        (ALL, 3, [*SIX[:2], UNLIKE]),
        (ALL, 6, [*SIX[:4], UNLIKE]),
        # All parameters of another family are others.
        ([*ALL, MORE_UNLIKE], 3, [*SIX[:2], MORE_UNLIKE]),
        ([*ALL, MORE_UNLIKE], 6, [*SIX[:4], MORE_UNLIKE, UNLIKE]),
        # More than 3 % behind the best: by its time alone.
        ([*SIX[:2], TOO_SLOW], 3, [*SIX[:2], TOO_SLOW]),
        # The same kernel again has no place.
        ([TWIN, *SIX[:1]], 3, [TWIN]),
        ([], 3, []),
    ],
)
def test_who_takes_part(outcomes: list[Outcome], places: int, expected: list[Outcome]) -> None:
    builder: Any = Builder(frozenset())
    found = [one.config for one in finalists(builder, outcomes, places)]
    assert found[: len(expected)] == [one.config for one in expected]
    # Places that nobody unlike takes go to the next by time.
    assert len(found) == min(places, len({builder.render(one.config).sha256 for one in outcomes}))


def test_who_does_not_compile_any_more_leaves_the_place_to_the_next() -> None:
    builder: Any = Builder(frozenset({256}))
    found = [one.config for one in finalists(builder, ALL, 3)]
    assert found == [one.config for one in SIX[:3]]
