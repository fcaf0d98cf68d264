"""Element types, one row each."""

from enum import Enum
from typing import Self

from autogemm.errors import UsageError


class DType(Enum):
    """An element type: its name, size in bytes and unit roundoff."""

    F32 = ("f32", 4, 2.0**-24)

    def __init__(self, label: str, size_bytes: int, unit_roundoff: float) -> None:
        self.label = label
        self.size_bytes = size_bytes
        self.unit_roundoff = unit_roundoff

    def __str__(self) -> str:
        return self.label

    @classmethod
    def parse(cls, label: str) -> Self:
        """The element type of that name. Raises UsageError for a name that is none."""
        for dtype in cls:
            if dtype.label == label:
                return dtype
        known = ", ".join(dtype.label for dtype in cls)
        raise UsageError(f"unknown dtype {label!r}; known: {known}")
