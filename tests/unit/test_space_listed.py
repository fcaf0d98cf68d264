"""A space that is a list of configs."""

from pathlib import Path

import pytest
from fake_target import PROBLEM, tiny_family, tiny_space

from autogemm.catalogue.gpus import find_device
from autogemm.model.config import Value
from autogemm.space import Family, listed_space
from autogemm.support.errors import EmptySpaceError, UsageError


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return tiny_family(tmp_path / "tiny")


# Out of order, and one (BM=16, BN=64) that the family's own constraints exclude or not: no matter.
COLUMNS: dict[str, tuple[Value, ...]] = {
    "BM": (64, 16, 32, 16),
    "BN": (32, 64, 32, 16),
    "U": (4, 1, 1, 1),
    "ECHO": (0, 1, 0, 0),
}


def test_legal_is_what_is_listed(family: Family) -> None:
    space, rows = listed_space(family, PROBLEM, find_device("h100"), COLUMNS)
    assert len(space) == 4
    assert [space.config(i)["BM"] for i in range(4)] == [16, 16, 32, 64]
    for index, row in enumerate(rows):
        config = space.config(index)
        assert config.as_dict() == {name: column[row] for name, column in COLUMNS.items()}
        assert space.index(config) == index
    assert space.features()[1].shape[0] == 4


def test_the_whole_space_listed_is_the_whole_space(family: Family) -> None:
    whole = tiny_space(family)
    configs = [whole.config(i) for i in reversed(range(len(whole)))]
    columns = {p.name: [config[p.name] for config in configs] for p in family.parameters}
    space, rows = listed_space(family, PROBLEM, find_device("h100"), columns)
    assert [space.config(i) for i in range(len(space))] == configs[::-1]
    assert list(rows) == list(reversed(range(len(whole))))
    assert (space.features()[1] == whole.features()[1]).all()


def test_fix_narrows_the_list(family: Family) -> None:
    device = find_device("h100")
    space, rows = listed_space(family, PROBLEM, device, COLUMNS, {"BM": (16,)})
    assert [space.config(i)["BN"] for i in range(len(space))] == [16, 64]
    assert list(rows) == [3, 1]
    with pytest.raises(EmptySpaceError, match="none of the 4 configs that are listed is left"):
        listed_space(family, PROBLEM, device, COLUMNS, {"BM": (16,), "U": (4,)})
    with pytest.raises(UsageError, match="no parameter 'BX'"):
        listed_space(family, PROBLEM, device, COLUMNS, {"BX": (16,)})
