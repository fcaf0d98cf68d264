"""Element types, and which of them a GEMM's matrices have, one row each."""

from enum import Enum
from typing import Self

from autogemm.support.errors import UsageError


class Element(Enum):
    """What an element of a matrix is: name, bytes stored, significant bits, name in emitted C++.

    TF32 is stored as FP32, of which tensor cores see the first 11 significant bits. 16-bit elements
    are emitted as their bits, so that a kernel needs no header.
    """

    F32 = ("f32", 4, 24, "float")
    TF32 = ("tf32", 4, 11, "float")
    F16 = ("f16", 2, 11, "unsigned short")
    BF16 = ("bf16", 2, 8, "unsigned short")

    def __init__(self, label: str, size_bytes: int, significant_bits: int, c_name: str) -> None:
        self.label = label
        self.size_bytes = size_bytes
        self.significant_bits = significant_bits
        self.c_name = c_name

    def __str__(self) -> str:
        return self.label

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest."""
        return 2.0**-self.significant_bits


class DType(Enum):
    """The element types of a GEMM: its name, those of A and B, those of C.

    Sums are accumulated in FP32 whatever they are.
    """

    F32 = ("f32", Element.F32, Element.F32)
    TF32 = ("tf32", Element.TF32, Element.F32)
    F16 = ("f16", Element.F16, Element.F16)
    BF16 = ("bf16", Element.BF16, Element.BF16)
    F16_F32 = ("f16-f32", Element.F16, Element.F32)
    BF16_F32 = ("bf16-f32", Element.BF16, Element.F32)

    def __init__(self, label: str, ab: Element, c: Element) -> None:
        self.label = label
        self.ab = ab
        self.c = c

    def __str__(self) -> str:
        return self.label

    @property
    def size_bytes(self) -> int:
        """Bytes of an element of A and B."""
        return self.ab.size_bytes

    @property
    def has_fp32_products(self) -> bool:
        """Whether products are of FP32 numbers; tensor cores multiply all others."""
        return self.ab is Element.F32

    @classmethod
    def parse(cls, label: str) -> Self:
        """The dtype of that name. Raises UsageError for a name that is none."""
        for dtype in cls:
            if dtype.label == label:
                return dtype
        known = ", ".join(dtype.label for dtype in cls)
        raise UsageError(f"unknown dtype {label!r}; known: {known}")
