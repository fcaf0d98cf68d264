"""One point of a search space."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from autogemm.support.limits import Mapped, Name, ParameterValue, Word

Value = int | str


@dataclass(frozen=True, slots=True)
class Config:
    """The values of a family's parameters, in the family's order."""

    family: Word
    values: Annotated[tuple[tuple[str, Value], ...], Mapped(ParameterValue, Name)]

    @classmethod
    def of(cls, family: str, values: Mapping[str, Value]) -> Self:
        """Make a config of a mapping that is in the family's order of parameters."""
        return cls(family, tuple(values.items()))

    def __getitem__(self, name: str) -> Value:
        for known, value in self.values:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return iter(self.values)

    def as_dict(self) -> dict[str, Value]:
        """Parameter name to value."""
        return dict(self.values)

    def as_json(self) -> str:
        """Canonical JSON: one text for one config, whatever the order of its parameters."""
        return json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))

    @property
    def sha256(self) -> str:
        """Identity of the config: of the family's name and the canonical JSON."""
        return hashlib.sha256(f"{self.family}\n{self.as_json()}".encode()).hexdigest()

    @property
    def label(self) -> str:
        """``BM=128 BN=128 BK=16 ...``"""
        return label(self.values)

    def __str__(self) -> str:
        return self.label


def label(values: Iterable[tuple[str, Value]]) -> str:
    """``BM=128 BN=128 BK=16 ...``"""
    return " ".join(f"{name}={value}" for name, value in values)


def shared_values(configs: Sequence[Config]) -> dict[str, Value]:
    """The values that several configs share, so that a row shows what differs; none for one."""
    if len(configs) < 2:
        return {}
    first, *rest = (config.as_dict() for config in configs)
    return {
        name: value for name, value in first.items() if all(one.get(name) == value for one in rest)
    }
