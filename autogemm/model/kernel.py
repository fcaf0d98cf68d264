"""A kernel on its way from text to the GPU: source, launch plan, cubin, resource use."""

import hashlib
import math
import re
from dataclasses import dataclass, field

from autogemm.model.config import Config
from autogemm.model.dtypes import Element
from autogemm.model.problem import Layout
from autogemm.model.signature import Argument, Signature, gemm_signature
from autogemm.support.limits import Count, Line, SourceText, Word

# The name of the kernel that multiplies in families that ship.
MAIN_KERNEL = "gemm_kernel"
# Up to here a kernel gets dynamic shared memory without asking: 48 KB less what it declares itself.
DEFAULT_SMEM_BYTES = 47 * 1024
# A text that asks whether this is defined is for the target sm_90a alone
# (templates/parts/ptx/sm_90a.cu.jinja): it uses instructions that the plain sm_90 does not have.
_NEEDS_SM_90A = "__CUDA_ARCH_FEAT_SM90_ALL"
# Where rows that belong to groups end, as in `templates/parts/ptx/tensor_map_copy.cu.jinja` and in
# `templates/export/tensor_map.cu.jinja`.
LAST_ROW = 2**30
# How every emitted file begins, up to the first empty line (templates/parts/head.cu.jinja).
_PROVENANCE = "// autogemm, family "
# A line of it: words, and nothing that a compiler could take for the end or a continuation.
_COMMENT = re.compile(r"// [A-Za-z0-9_.+=:, -]*")


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: symbol, grid and block extents (x, y, z), dynamic shared memory.

    With ``overlaps`` its blocks may begin while the kernel before it in the stream still runs
    (programmatic dependent launch): they wait for its end before they use global memory.
    """

    kernel: str
    grid: tuple[int, int, int]
    threads: tuple[int, int, int]
    smem_bytes: int
    overlaps: bool = False

    @property
    def num_threads(self) -> int:
        """Threads per block."""
        return self.threads[0] * self.threads[1] * self.threads[2]


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The tiles of a matrix, as the tensor memory accelerator (TMA) is told of them.

    ``matrix`` is ``A``, ``B``, ``C``, ``workspace`` or the argument of an epilogue's input, and the
    first element lies ``offset_bytes`` into it. Extents and box are (columns, rows), contiguous
    first, and ``ld`` the distance of rows, in elements; ``swizzle_bytes`` is 0, 32, 64 or 128. A
    batch has ``matrices``, each ``matrix_ld`` elements after the previous one: a third dimension,
    with a box of 1. None for one product. Where the rows are ``divided``, they belong to groups,
    and a kernel says with each box which row they end before.
    """

    name: str
    matrix: str
    element: Element
    extent: tuple[int, int]
    ld: int
    box: tuple[int, int]
    swizzle_bytes: int = 0
    offset_bytes: int = 0
    matrices: int | None = None
    matrix_ld: int = 0
    divided: bool = False

    def dimensions(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Extents of all dimensions, bytes from one to the next of all but the first, the box.

        Rows that end anywhere are two dimensions: the first ends at `LAST_ROW`, where TMA clips,
        and the second moves that to the row behind a group's last. A third one, in which elements
        are at `LAST_ROW`, takes so many rows back, since addresses are modulo 2^64. So the map
        begins with the matrix, where TMA reads even for a box that is outside of it as a whole.
        """
        row_bytes = self.element.size_bytes * self.ld
        if self.divided:
            columns, rows = self.extent
            extent = (columns, LAST_ROW, rows + 1, LAST_ROW + 1)
            return extent, (row_bytes, row_bytes, 2**64 // LAST_ROW - row_bytes), (*self.box, 1, 1)
        if self.matrices is None:
            return self.extent, (row_bytes,), self.box
        matrix_bytes = self.element.size_bytes * self.matrix_ld
        return (*self.extent, self.matrices), (row_bytes, matrix_bytes), (*self.box, 1)


@dataclass(frozen=True, slots=True)
class Extra:
    """An argument that a family's kernels take beside the GEMM's: one value, or an array.

    ``count`` is the number of elements of an array and None for one value. With ``neutral`` in all
    of them the kernels compute the plain GEMM, which is what is tuned and verified. An input of the
    problem's epilogue (``is_input``) has values of its own instead: one value is ``neutral``,
    arrays are random. Its second output (``is_output``) is written.
    """

    argument: Argument
    count: int | None
    neutral: float
    is_input: bool = False
    is_output: bool = False

    @property
    def is_given(self) -> bool:
        """Whether it comes with the problem's epilogue, not with the family."""
        return self.is_input or self.is_output


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The launches that make one GEMM, in order, and what their arguments are made of: the device
    workspace that they share, tensor maps, a family's own arguments, and whether they take a batch
    or groups, masked or not.

    ``fp32_every`` says after how many products of 8-bit floats sums of tensor cores are added in
    FP32 (`Family.fp32_every`): results must be as exact as that.
    """

    launches: tuple[Launch, ...]
    workspace_bytes: int = 0
    tensor_maps: tuple[TensorMap, ...] = ()
    extras: tuple[Extra, ...] = ()
    batched: bool = False
    grouped: bool = False
    masked: bool = False
    fp32_every: int = 0

    def takes(self, text: str) -> bool:
        """Whether a stored text reads tensor maps as this plan has them: those of an earlier
        version do not name the ends of groups.
        """
        return any(one.divided for one in self.tensor_maps) == ("GroupMap" in text)

    @property
    def arrays(self) -> tuple[Extra, ...]:
        """The family's and the epilogue's arguments that are arrays."""
        return tuple(extra for extra in self.extras if extra.count is not None)

    @property
    def signature(self) -> Signature:
        """The arguments that every kernel of the plan takes."""
        return gemm_signature(
            [extra.argument for extra in self.extras],
            workspace=self.workspace_bytes > 0,
            tensor_maps=[one.name for one in self.tensor_maps],
            batched=self.batched,
            grouped=self.grouped,
            masked=self.masked,
        )

    @property
    def main(self) -> Launch:
        """The launch that multiplies, by its name; in a family of other names the largest."""
        named = (launch for launch in self.launches if launch.kernel == MAIN_KERNEL)
        return next(named, None) or max(
            self.launches, key=lambda launch: launch.num_threads * math.prod(launch.grid)
        )


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Emitted CUDA text. The exported text is the one that was timed: its identity is the sha256 of
    the text."""

    family: Word
    template_sha256: Line
    config: Config
    layout: Layout
    text: SourceText
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", hashlib.sha256(self.text.encode()).hexdigest())

    @property
    def code(self) -> str:
        """The text behind the comment that names family and config.

        A parameter that is renamed or new changes that comment and nothing else of the kernel. A
        beginning that holds more than a comment belongs to the code: the text may come from a file.
        """
        head, _, rest = self.text.partition("\n\n")
        is_comment = head.startswith(_PROVENANCE) and all(map(_COMMENT.fullmatch, head.split("\n")))
        return rest if is_comment else self.text

    @property
    def arch_suffix(self) -> str:
        """``a`` where the text must be compiled for one architecture alone (sm_90a), else empty."""
        return "a" if _NEEDS_SM_90A in self.text else ""


@dataclass(frozen=True, slots=True)
class Resources:
    """Resource use of a kernel: registers, spills, stack per thread; shared memory per block."""

    kernel: Line
    registers: Count
    spill_store_bytes: Count
    spill_load_bytes: Count
    stack_bytes: Count
    static_smem_bytes: Count


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Machine code of one source for one architecture."""

    source_sha256: str
    arch: str
    cubin: bytes = field(repr=False)
    resources: tuple[Resources, ...]
    log: str = field(repr=False)
    compiler: str
    options: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """One config made ready for a target; ``compiled`` is None where none is needed."""

    source: KernelSource
    plan: LaunchPlan
    compiled: CompiledKernel | None

    @property
    def config(self) -> Config:
        """The config that the source was rendered from."""
        return self.source.config
