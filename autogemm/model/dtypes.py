"""Element types, and which of them a GEMM's matrices have, one row each.

Whatever depends on an element type reads the attributes of its row: names in C, numbers of CUDA's
headers, bits. docs/extending.md says what a new row needs besides.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Self

from autogemm.support.errors import UsageError

# CUBLAS_COMPUTE_32I.
COMPUTE_32I = 72


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ElementRow:
    """All that is known of an element type.

    Values are binary floating point as in IEEE 754: a sign, ``exponent_bits``, ``fraction_bits``;
    subnormal numbers, infinities and NaN. They are the upper bits of ``size_bytes`` in memory.
    Where ``has_infinity`` is false, the largest exponent is one of numbers too, and only all bits
    set are NaN (E4M3 of Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433,
    2022).
    Where ``is_integer`` is true they are integers in two's complement, of all the bytes: they have
    neither exponent nor fraction, and neither infinity nor NaN.
    """

    label: str
    size_bytes: int
    exponent_bits: int
    fraction_bits: int
    # A quiet NaN that no arithmetic produces, by which it is seen that nothing was written; of
    # integers a number that sums hardly are.
    canary_bits: int
    has_infinity: bool = True
    is_integer: bool = False
    # Bits of the fraction to which tensor cores align the terms of a sum, and cut it off; products
    # that they add in one step, at least.
    accum_fraction_bits: int = 23
    products_per_step: int = 4

    # In emitted kernels; 16-bit elements are their bits there, so that a kernel needs no header.
    c_name: str
    # For callers of the exported function: C type, header (empty: none), function that gives the
    # bits of a value, and the exported function itself, by the type of A and B.
    host_type: str
    host_header: str = ""
    host_bits: str
    export_function: str

    # cudaDataType_t; cublasComputeType_t for products of them, summed in FP32.
    cuda_data_type: int
    cublas_compute_type: int = 68
    # Whether cublasGemmEx multiplies it; cuBLASLt proposes what it has.
    has_gemm_ex: bool = True
    # CUtensorMapDataType of cuda.h: CU_TENSOR_MAP_DATA_TYPE_ without the prefix, and the number.
    tensor_map_type: str
    tensor_map_number: int

    # How NumPy, CuPy and torch name arrays of it, and the (type code, bits) of DLPack; None where
    # arrays have no such type.
    array_name: str | None = None
    dlpack: tuple[int, int] | None = None
    # ArgumentType in T1 files.
    t1_type: str = "custom"


class Element(ElementRow, Enum):
    """The type of a matrix's elements.

    TF32 is stored as FP32, of which tensor cores see the first 11 significant bits.
    """

    F32 = ElementRow(
        label="f32", size_bytes=4, exponent_bits=8, fraction_bits=23, canary_bits=0x7FC0C0DE,
        c_name="float", host_type="float", host_bits="__float_as_int",
        export_function="autogemm_sgemm", cuda_data_type=0,
        tensor_map_type="FLOAT32", tensor_map_number=7,
        array_name="float32", dlpack=(2, 32), t1_type="float",
    )  # fmt: skip
    TF32 = ElementRow(
        label="tf32", size_bytes=4, exponent_bits=8, fraction_bits=10, canary_bits=0x7FC0C0DE,
        c_name="float", host_type="float", host_bits="__float_as_int",
        export_function="autogemm_gemm_tf32", cuda_data_type=0, cublas_compute_type=77,
        tensor_map_type="TFLOAT32", tensor_map_number=11, t1_type="float",
    )  # fmt: skip
    BF16 = ElementRow(
        label="bf16", size_bytes=2, exponent_bits=8, fraction_bits=7, canary_bits=0x7FE5,
        c_name="unsigned short", host_type="__nv_bfloat16", host_header="cuda_bf16.h",
        host_bits="__bfloat16_as_short", export_function="autogemm_gemm_bf16", cuda_data_type=14,
        tensor_map_type="BFLOAT16", tensor_map_number=9, array_name="bfloat16", dlpack=(4, 16),
    )  # fmt: skip
    F16 = ElementRow(
        label="f16", size_bytes=2, exponent_bits=5, fraction_bits=10, canary_bits=0x7FE5,
        c_name="unsigned short", host_type="__half", host_header="cuda_fp16.h",
        host_bits="__half_as_short", export_function="autogemm_gemm_f16", cuda_data_type=2,
        tensor_map_type="FLOAT16", tensor_map_number=6,
        array_name="float16", dlpack=(2, 16), t1_type="half",
    )  # fmt: skip
    # 13 bits, 32 products: DeepSeek-V3 (arXiv:2412.19437, section 3.5.2), SageAttention2
    # (arXiv:2411.10958, section 3.2); errors on an H200 agree (decision 0090).
    E4M3 = ElementRow(
        label="e4m3", size_bytes=1, exponent_bits=4, fraction_bits=3, canary_bits=0xFF,
        has_infinity=False, accum_fraction_bits=13, products_per_step=32,
        c_name="unsigned char", host_type="__nv_fp8_e4m3", host_header="cuda_fp8.h",
        host_bits="bits_of_fp8", export_function="autogemm_gemm_e4m3", cuda_data_type=28,
        has_gemm_ex=False, tensor_map_type="UINT8", tensor_map_number=0,
        array_name="float8_e4m3fn", dlpack=(10, 8),
    )  # fmt: skip
    E5M2 = ElementRow(
        label="e5m2", size_bytes=1, exponent_bits=5, fraction_bits=2, canary_bits=0xFE,
        accum_fraction_bits=13, products_per_step=32,
        c_name="unsigned char", host_type="__nv_fp8_e5m2", host_header="cuda_fp8.h",
        host_bits="bits_of_fp8", export_function="autogemm_gemm_e5m2", cuda_data_type=29,
        has_gemm_ex=False, tensor_map_type="UINT8", tensor_map_number=0,
        array_name="float8_e5m2", dlpack=(12, 8),
    )  # fmt: skip
    I8 = ElementRow(
        label="i8", size_bytes=1, exponent_bits=0, fraction_bits=0, canary_bits=0x80,
        has_infinity=False, is_integer=True, c_name="signed char", host_type="signed char",
        host_bits="int", export_function="autogemm_gemm_i8", cuda_data_type=3,
        tensor_map_type="UINT8", tensor_map_number=0, array_name="int8", dlpack=(0, 8),
        t1_type="int8",
    )  # fmt: skip
    # The type of sums of I8; no operands have it.
    I32 = ElementRow(
        label="i32", size_bytes=4, exponent_bits=0, fraction_bits=0, canary_bits=0x80C0C0DE,
        has_infinity=False, is_integer=True, c_name="int", host_type="int", host_bits="int",
        export_function="autogemm_gemm_i32", cuda_data_type=10,
        tensor_map_type="INT32", tensor_map_number=3, array_name="int32", dlpack=(0, 32),
        t1_type="int32",
    )  # fmt: skip

    def __new__(cls, row: ElementRow) -> Self:
        """Make the label the member's value."""
        member = object.__new__(cls)
        member._value_ = row.label
        return member

    def __init__(self, row: ElementRow) -> None:
        vars(self).update(vars(row))

    def __str__(self) -> str:
        return self.label

    @property
    def significant_bits(self) -> int:
        """Bits of a normal number's significand, the leading one included."""
        return self.fraction_bits + 1

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest."""
        return 2.0**-self.significant_bits

    @property
    def exponent_bias(self) -> int:
        """The number that is added to an exponent to store it."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest number."""
        return self.exponent_bias + (0 if self.has_infinity else 1)

    @property
    def least_exponent(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.exponent_bias

    @property
    def saturates(self) -> bool:
        """Whether conversions make the largest number of all that is larger, infinity too, as those
        to 8-bit floats on GPUs do (PTX ISA, cvt, .satfinite); NaN stays NaN.
        """
        return self.size_bytes == 1 and not self.is_integer

    @property
    def largest(self) -> float:
        """The largest number of a floating-point type."""
        # Without infinity the last fraction of the largest exponent is NaN.
        steps_missing = 1 if self.has_infinity else 2
        return 2.0**self.largest_exponent * (2.0 - steps_missing * 2.0**-self.fraction_bits)

    @property
    def overflow(self) -> float:
        """The least number that is rounded to infinity, of a type that has one."""
        return self.largest + 2.0 ** (self.largest_exponent - self.fraction_bits - 1)

    @property
    def half_step_exponent(self) -> int:
        """Exponent of `half_step`, the largest error of rounding subnormal numbers and integers."""
        if self.is_integer:
            return -1
        return self.least_exponent - self.fraction_bits - 1

    @property
    def half_step(self) -> float:
        """Half the distance of subnormal numbers."""
        return 2.0**self.half_step_exponent

    @property
    def format_code(self) -> int:
        """Whether integers, no infinity, bytes, bits of the exponent and of the fraction in one
        number, for CUDA and C++.
        """
        flags = (0 if self.has_infinity else 1 << 24) | (1 << 25 if self.is_integer else 0)
        return flags | self.size_bytes << 16 | self.exponent_bits << 8 | self.fraction_bits


class DType(Enum):
    """The element types of a GEMM: its name, that of A and B, that of C, and B's own if it is
    another one than A's.

    Products of integers are accumulated in 32-bit integers, all others in FP32. ``ab`` is the type
    of A. Where ``b``, that of B, differs, both are 8-bit floats, which share all but their formats:
    size, rate, and what is lost in sums.
    """

    F32 = ("f32", Element.F32, Element.F32)
    TF32 = ("tf32", Element.TF32, Element.F32)
    F16 = ("f16", Element.F16, Element.F16)
    BF16 = ("bf16", Element.BF16, Element.BF16)
    F16_F32 = ("f16-f32", Element.F16, Element.F32)
    BF16_F32 = ("bf16-f32", Element.BF16, Element.F32)
    E4M3 = ("e4m3", Element.E4M3, Element.BF16)
    E4M3_F16 = ("e4m3-f16", Element.E4M3, Element.F16)
    E4M3_F32 = ("e4m3-f32", Element.E4M3, Element.F32)
    E5M2 = ("e5m2", Element.E5M2, Element.BF16)
    E5M2_F16 = ("e5m2-f16", Element.E5M2, Element.F16)
    E5M2_F32 = ("e5m2-f32", Element.E5M2, Element.F32)
    E4M3_BY_E5M2 = ("e4m3xe5m2", Element.E4M3, Element.BF16, Element.E5M2)
    E4M3_BY_E5M2_F16 = ("e4m3xe5m2-f16", Element.E4M3, Element.F16, Element.E5M2)
    E4M3_BY_E5M2_F32 = ("e4m3xe5m2-f32", Element.E4M3, Element.F32, Element.E5M2)
    E5M2_BY_E4M3 = ("e5m2xe4m3", Element.E5M2, Element.BF16, Element.E4M3)
    E5M2_BY_E4M3_F16 = ("e5m2xe4m3-f16", Element.E5M2, Element.F16, Element.E4M3)
    E5M2_BY_E4M3_F32 = ("e5m2xe4m3-f32", Element.E5M2, Element.F32, Element.E4M3)
    E4M3_E4M3 = ("e4m3-e4m3", Element.E4M3, Element.E4M3)
    E5M2_E5M2 = ("e5m2-e5m2", Element.E5M2, Element.E5M2)
    BF16_E4M3 = ("bf16-e4m3", Element.BF16, Element.E4M3)
    I8 = ("i8", Element.I8, Element.I32)
    I8_BF16 = ("i8-bf16", Element.I8, Element.BF16)
    I8_F16 = ("i8-f16", Element.I8, Element.F16)
    I8_F32 = ("i8-f32", Element.I8, Element.F32)

    def __init__(self, label: str, ab: Element, c: Element, b: Element | None = None) -> None:
        self.label = label
        self.ab = ab
        self.b = b or ab
        self.c = c

    def __str__(self) -> str:
        return self.label

    @property
    def size_bytes(self) -> int:
        """Bytes of an element of A and B."""
        return self.ab.size_bytes

    @property
    def operands(self) -> str:
        """The types of A and B by name: one, or both, as in ``e5m2xe4m3``."""
        return self.ab.label if self.b is self.ab else f"{self.ab.label}x{self.b.label}"

    @property
    def export_function(self) -> str:
        """The function that an exported file has for it, whatever its C."""
        own = self.ab.export_function
        return own if self.b is self.ab else f"{own}x{self.b.label}"

    def with_c(self, c: Element) -> "DType":
        """The dtype of the same operands and another C."""
        return next(one for one in DType if (one.ab, one.b, one.c) == (self.ab, self.b, c))

    @property
    def of_arrays(self) -> Element:
        """The type of epilogues' arrays that declare none: C's, of an 8-bit C bf16."""
        return Element.BF16 if self.c.saturates else self.c

    @property
    def of_sums(self) -> "DType":
        """The types where an epilogue is a pass of its own behind the product: with a C of 8 bits
        products are of 16; sums of integers are integers of 32.
        """
        if self.ab.is_integer and self.c.size_bytes < Element.I32.size_bytes:
            return DType.I8
        return self.with_c(self.of_arrays) if self.c.saturates else self

    @property
    def converted(self) -> "DType":
        """The types of `of_sums` with operands of 16 bits for those of 8."""
        sums = self.of_sums
        return DType.of(Element.F16 if sums.c is Element.F16 else Element.BF16, sums.c)

    @property
    def multiplied(self) -> "DType":
        """The types that cuBLAS multiplies for `of_sums`. It has no products of two E5M2 matrices,
        whose elements are all numbers of BF16, too, and of FP16.
        """
        if (self.ab, self.b) != (Element.E5M2, Element.E5M2):
            return self.of_sums
        return self.converted

    @property
    def has_fp32_products(self) -> bool:
        """Whether products are of FP32 numbers; tensor cores multiply all others."""
        return self.ab is Element.F32

    @property
    def adds_in_few_bits(self) -> bool:
        """Whether tensor cores add products in fewer bits than FP32 has, so that cuBLASLt has two
        ways: theirs, and one that promotes sums.
        """
        return self.ab.accum_fraction_bits < Element.F32.accum_fraction_bits

    @property
    def has_exact_sums(self) -> bool:
        """Whether C is the sums of integers as they are: no rounding, and no scaling."""
        return self.c.is_integer

    def legal_factors(self, alpha: float, beta: float) -> tuple[float, float]:
        """Alpha and beta, or those that stand in for them where C is sums as they are."""
        return (1.0, float(beta != 0.0)) if self.has_exact_sums else (alpha, beta)

    def require_factors(self, alpha: float, beta: float) -> None:
        """As in cuBLAS, integers in C are sums as they are, or added to what C held. Raises
        UsageError for an alpha that is not 1 and a beta that is neither 0 nor 1.
        """
        if self.has_exact_sums and (alpha, beta) != self.legal_factors(alpha, beta):
            raise UsageError(
                f"C of {self} is sums as they are, in 32-bit integers: alpha must be 1 and beta 0 "
                f"or 1, got {alpha:g} and {beta:g}; for scaled sums use {self.scaled}"
            )

    @property
    def scaled(self) -> str:
        """The names of the dtypes with the same operands and a C of floats."""
        return ", ".join(
            one.label for one in DType if one.operands == self.operands and not one.has_exact_sums
        )

    @property
    def has_gemm_ex(self) -> bool:
        """Whether cublasGemmEx multiplies it: integers with sums of 32 bits or in FP32, and nothing
        to 8-bit floats.
        """
        is_short = self.ab.is_integer and self.c.size_bytes < 4
        return self.ab.has_gemm_ex and not (is_short or self.c.saturates)

    @property
    def cublas_compute_type(self) -> int:
        """The cublasComputeType_t: sums of integers where C has them, else the operands' own."""
        return COMPUTE_32I if self.has_exact_sums else self.ab.cublas_compute_type

    @property
    def cublas_scale_type(self) -> int:
        """The cudaDataType_t of alpha and beta."""
        return (Element.I32 if self.has_exact_sums else Element.F32).cuda_data_type

    @classmethod
    def of(cls, ab: Element, c: Element) -> Self:
        """The dtype of those types, both operands of the same."""
        return next(one for one in cls if (one.ab, one.b, one.c) == (ab, ab, c))

    @classmethod
    def parse(cls, label: str) -> Self:
        """The dtype of that name. Raises UsageError for a name that is none."""
        for dtype in cls:
            if dtype.label == label:
                return dtype
        known = ", ".join(dtype.label for dtype in cls)
        raise UsageError(f"unknown dtype {label!r}; known: {known}")

    @classmethod
    def one_each(cls) -> tuple[Self, ...]:
        """The first dtype for each type of A and B, in the order of `Element`."""
        firsts = (next((one for one in cls if one.ab is element), None) for element in Element)
        return tuple(one for one in firsts if one is not None)
