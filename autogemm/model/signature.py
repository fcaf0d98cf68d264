"""The arguments that every kernel of a GEMM takes, in order.

This is the only place that says which they are: templates, launchers, the emulator and the GPU
worker iterate over a `Signature`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from autogemm.model.dtypes import DType, Element
from autogemm.model.problem import Problem


class ArgumentKind(Enum):
    """The origin of an argument: the problem, its matrices, the family, the launch plan."""

    SIZE = auto()
    LEADING_DIMENSION = auto()
    BATCH = auto()
    GROUPS = auto()
    FACTOR = auto()
    MATRIX = auto()
    EXTRA = auto()
    WORKSPACE = auto()
    TENSOR_MAP = auto()


EXTENT_KINDS = (ArgumentKind.SIZE, ArgumentKind.LEADING_DIMENSION)


class ProblemType(Enum):
    """An element type that the problem decides: that of A (of B, too, unless B has its own), that
    of B, or that of C.
    """

    AB = "ab"
    B = "b"
    C = "c"


ArgumentType = Element | ProblemType
CNames = Mapping[ArgumentType, str]
"""Names of element types where a signature is written."""
KERNEL_NAMES: CNames = {element: element.c_name for element in Element}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: an int, a number or an array of an element type, a tensor map.

    ``type`` is None for an int, an array of them, and a tensor map. Arrays but C and the workspace
    are only read.
    """

    name: str
    kind: ArgumentKind
    doc: str
    type: ArgumentType | None = None
    is_array: bool = False
    is_const: bool = False

    @property
    def is_scalar(self) -> bool:
        """Whether the value itself is passed, neither an address nor a tensor map."""
        return not self.is_array and self.kind is not ArgumentKind.TENSOR_MAP

    def element(self, dtype: DType) -> Element | None:
        """The element type in a problem of those types; None for an int and for a tensor map."""
        match self.type:
            case ProblemType.AB:
                return dtype.ab
            case ProblemType.B:
                return dtype.b
            case ProblemType.C:
                return dtype.c
            case element:
                return element

    def in_kernel(self, names: CNames, *, restrict: bool = True) -> str:
        """The declaration in a kernel: ``const float* __restrict__ A``."""
        if self.kind is ArgumentKind.TENSOR_MAP:
            return f"const __grid_constant__ TensorMap {self.name}"
        between = " __restrict__ " if self.is_array and restrict else " "
        return f"{self._c_type(names)}{between}{self.name}"

    def in_host_code(self, names: CNames) -> str:
        """The declaration in a C function for callers: ``const float* A``, ``void* workspace``."""
        is_workspace = self.kind is ArgumentKind.WORKSPACE
        return f"{'void*' if is_workspace else self._c_type(names)} {self.name}"

    def _c_type(self, names: CNames) -> str:
        text = "int" if self.type is None else names[self.type]
        return f"{'const ' if self.is_const else ''}{text}{'*' if self.is_array else ''}"


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a launch plan's kernels, in order; each kernel takes them all."""

    arguments: tuple[Argument, ...]

    def __iter__(self) -> Iterator[Argument]:
        return iter(self.arguments)

    def __len__(self) -> int:
        return len(self.arguments)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arguments, in order."""
        return tuple(argument.name for argument in self)

    def index(self, name: str) -> int:
        """The position of an argument, from 0. Raises ValueError for a name that is none."""
        return self.names.index(name)

    def of_kind(self, *kinds: ArgumentKind) -> tuple[Argument, ...]:
        """The arguments of these kinds, in order."""
        return tuple(argument for argument in self if argument.kind in kinds)

    def in_kernel(self, ab: str, c: str | None = None, *, unrestricted: Sequence[str] = ()) -> str:
        """The parameter list of a kernel, for templates.

        ``ab`` and ``c`` are what the kernel calls the element types of A and B, and of C (by
        default the same). Arrays are ``__restrict__``, but those named in ``unrestricted``.
        """
        names = {**KERNEL_NAMES, ProblemType.AB: ab, ProblemType.B: ab, ProblemType.C: c or ab}
        return ", ".join(
            one.in_kernel(names, restrict=one.name not in unrestricted) for one in self
        )

    def in_host_code(self, names: CNames) -> str:
        """The parameter list of a C function for callers, which knows how large a workspace is."""
        texts = []
        for argument in self:
            texts.append(argument.in_host_code(names))
            if argument.kind is ArgumentKind.WORKSPACE:
                texts.append(f"size_t {argument.name}_bytes")
        return ", ".join(texts)

    def in_call(self, values: Mapping[str, str], owner: str = "") -> str:
        """The arguments of a call of the C function; those without a value in ``values`` are
        members of ``owner`` (``p.``), or variables of their own names.
        """
        texts = []
        for argument in self:
            texts.append(values.get(argument.name, owner + argument.name))
            if argument.kind is ArgumentKind.WORKSPACE:
                size = f"{argument.name}_bytes"
                texts.append(values.get(size, owner + size))
        return ", ".join(texts)


def gemm_signature(  # noqa: PLR0913  # each kind of argument that some have
    extras: Sequence[Argument] = (),
    *,
    workspace: bool = False,
    tensor_maps: Sequence[str] = (),
    batched: bool = False,
    grouped: bool = False,
    masked: bool = False,
) -> Signature:
    """The signature of a GEMM's kernels: the problem's arguments, those of a batch or of groups
    where there are any, a family's own ones, then the workspace and the tensor maps where there are
    any. ``masked`` groups have counts in place of offsets.
    """
    return Signature(
        (
            *_GEMM,
            *(_BATCH if batched else ()),
            *((_NUM_GROUPS, _COUNTS if masked else _OFFSETS) if grouped else ()),
            *extras,
            *([_WORKSPACE] if workspace else []),
            *(Argument(name, ArgumentKind.TENSOR_MAP, "tiles for TMA") for name in tensor_maps),
        )
    )


def extents(problem: Problem) -> dict[str, int]:
    """The problem's sizes, leading dimensions, batch and number of groups, by the names of their
    arguments.
    """
    found = {one.name: getattr(problem, one.name.lower()) for one in PLAIN.of_kind(*EXTENT_KINDS)}
    if not problem.groups.is_none:
        return found | {GROUPS: problem.groups.count}
    return found if problem.batch.is_one else found | batch_extents(problem)


def batch_extents(problem: Problem) -> dict[str, int]:
    """The numbers of the problem's batch, by the names of their arguments."""
    values = (problem.batch.count, *problem.batch_rows)
    return dict(zip(BATCH_NAMES, values, strict=True))


def factors(problem: Problem) -> dict[str, float]:
    """The problem's alpha and beta, by the names of their arguments."""
    return {one.name: getattr(problem, one.name) for one in PLAIN.of_kind(ArgumentKind.FACTOR)}


def _matrix(name: str, doc: str, type_: ProblemType) -> tuple[Argument, Argument]:
    is_const = type_ is not ProblemType.C
    distance = f"elements from a row of {name} to the next"
    return (
        Argument(name, ArgumentKind.MATRIX, doc, type_, is_array=True, is_const=is_const),
        Argument(f"ld{name.lower()}", ArgumentKind.LEADING_DIMENSION, distance),
    )


_OLD_C = "the factor of the old C, which is not read where this is 0"
_GEMM = (
    Argument("M", ArgumentKind.SIZE, "rows of C"),
    Argument("N", ArgumentKind.SIZE, "columns of C"),
    Argument("K", ArgumentKind.SIZE, "length of the dot products"),
    Argument("alpha", ArgumentKind.FACTOR, "the factor of the product", Element.F32),
    *_matrix("A", "the left operand", ProblemType.AB),
    *_matrix("B", "the right operand", ProblemType.B),
    Argument("beta", ArgumentKind.FACTOR, _OLD_C, Element.F32),
    *_matrix("C", "the result", ProblemType.C),
)


def _rows_of(name: str) -> Argument:
    doc = f"rows of {name} from where a product's begins to the next one's"
    return Argument(f"batch_rows_{name.lower()}", ArgumentKind.BATCH, doc)


_BATCH = (
    Argument("batch", ArgumentKind.BATCH, "products"),
    *(_rows_of(name) for name in ("A", "B", "C")),
)
BATCH_NAMES = tuple(argument.name for argument in _BATCH)
GROUPS, OFFSETS, COUNTS = "groups", "offsets", "counts"
_FIRST_ROWS = "the first row of each group in A and C, then the one behind the last group's"
_OWN_ROWS = "how many rows of each group belong to it; groups begin M / groups rows apart"
_NUM_GROUPS = Argument(GROUPS, ArgumentKind.GROUPS, "groups of rows, each with a B of its own")
_OFFSETS, _COUNTS = (
    Argument(name, ArgumentKind.GROUPS, doc, is_array=True, is_const=True)
    for name, doc in ((OFFSETS, _FIRST_ROWS), (COUNTS, _OWN_ROWS))
)
_ZEROED = "device memory, zero at its first use"
_WORKSPACE = Argument("workspace", ArgumentKind.WORKSPACE, _ZEROED, Element.F32, is_array=True)
PLAIN = gemm_signature()
"""The signature of a family without arguments of its own, workspace and tensor maps."""
