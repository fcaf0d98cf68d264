"""Ways to split FP32 numbers into numbers that tensor cores multiply, one row each."""

from enum import Enum

from autogemm.model.config import Config
from autogemm.model.dtypes import DType, Element

# The parameter by which a family says so.
PARAMETER = "SPLIT"


class Splitting(Enum):
    """FP32 products as sums of products of lower precision: the name, what is multiplied, into how
    many of these a number is split, and how many of their products are added.

    ``lost_exponent`` bounds what that loses in each element of C: less than 2 to its power of
    |A||B|, by the precision of the parts and the size of the products that are left out (see
    docs/kernels/sgemm_emulated_wgmma.md). None where nothing is lost. The errors of accumulating
    in FP32 are added to it, as in any FP32 GEMM.
    """

    TF32X3 = ("tf32x3", Element.TF32, 2, 3, -20)
    BF16X6 = ("bf16x6", Element.BF16, 3, 6, -20)
    BF16X9 = ("bf16x9", Element.BF16, 3, 9, None)
    F16X3 = ("f16x3", Element.F16, 2, 3, -20)

    def __init__(
        self,
        label: str,
        element: Element,
        num_parts: int,
        num_products: int,
        lost_exponent: int | None,
    ) -> None:
        self.label = label
        self.element = element
        self.num_parts = num_parts
        self.num_products = num_products
        self.lost_exponent = lost_exponent

    def __str__(self) -> str:
        return self.label

    @property
    def words(self) -> str:
        """The computation and the error to expect, as a sentence for people."""
        loses = "nothing" if self.lost_exponent is None else f"less than 2^{self.lost_exponent}"
        of = "" if self.lost_exponent is None else " of |A||B|"
        return (
            f"FP32 from tensor cores, {self.label}: {self.num_parts} numbers of "
            f"{self.element.label.upper()} for each, {self.num_products} products of them; that "
            f"loses {loses}{of}, and results are held to the error bound of FP32"
        )


def splitting_of(config: Config | None) -> Splitting | None:
    """The splitting by which a config makes FP32 of tensor-core products; None if it does not."""
    wanted = config.as_dict().get(PARAMETER) if config is not None else None
    return next((one for one in Splitting if one.label == wanted), None)


def multiplied(dtype: DType, config: Config | None) -> str:
    """The numbers that a config multiplies: ``BF16``, or ``f16x3`` where FP32 is split."""
    splitting = splitting_of(config)
    return splitting.label if splitting is not None else dtype.ab.label.upper()
