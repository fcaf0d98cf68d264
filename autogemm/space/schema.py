"""The form of a family's YAML: which fields there are and what type each has."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from autogemm.space.family import MAX_VALUE
from autogemm.support.limits import WORD, WORD_RULE
from autogemm.support.naming import did_you_mean

MAX_VALUES = 10_000
MAX_SEEDS = 1000

IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"
_READS_DEVICE = "device."


def _int_or_text(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("YAML reads on, off, yes, no as booleans: write 0 or 1, or quote the word")
    if not isinstance(value, int | str):
        raise ValueError("write an integer or a string")
    return value


def _parameter_value(value: Any) -> Any:
    value = _int_or_text(value)
    if isinstance(value, int) and abs(value) > MAX_VALUE:
        raise ValueError("a value must fit 32 bits")
    if isinstance(value, str) and (_READS_DEVICE in value or not WORD.fullmatch(value)):
        raise ValueError(WORD_RULE)
    return value


def _listed_value(value: Any) -> Any:
    """A value, or an expression over ``device.*``, which no word contains."""
    return value if isinstance(value, str) and _READS_DEVICE in value else _parameter_value(value)


def _expression(value: Any) -> Any:
    """An expression is written as a text or as a plain number."""
    return str(_int_or_text(value))


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER, max_length=60)]
ParameterValue = Annotated[int | str, BeforeValidator(_parameter_value)]
ListedValue = Annotated[int | str, BeforeValidator(_listed_value)]
ExpressionText = Annotated[str, BeforeValidator(_expression)]
Extents = Annotated[
    list[ExpressionText], BeforeValidator(_listed), Field(min_length=1, max_length=3)
]


Pair = Annotated[list[ExpressionText], Field(min_length=2, max_length=2)]
Labels = Annotated[list[str], BeforeValidator(_listed), Field(min_length=1, max_length=16)]


class _Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ParameterForm(_Form):
    """``BM: {values: [16, 32], doc: ...}``; seeds and recordings may lack one with a default.

    Integers may be expressions over the GPU: ``values: [0, device.num_sms, 2 * device.num_sms]``.
    """

    values: Annotated[list[ListedValue], Field(min_length=1, max_length=MAX_VALUES)]
    default: ParameterValue | None = None
    doc: Text


class ConstraintForm(_Form):
    """``{require: BM % WM == 0, because: ...}``."""

    require: ExpressionText
    because: Text


class LaunchForm(_Form):
    """``{kernel: gemm_kernel, threads: ..., grid: ..., smem_bytes: ...}``.

    A launch whose ``when`` is 0 is left out; it reads parameters only. ``fewest`` says how few
    blocks may do the work of ``grid``, walking over more tiles each: edge cases, which are
    small, are launched with so few. Where ``overlaps`` is 1 its blocks may begin before the kernel
    before it in the stream has ended (programmatic dependent launch); it reads parameters only, and
    the template has to call ``wait_for_kernels_before()``.
    """

    kernel: Identifier
    threads: Extents
    grid: Extents
    fewest: ExpressionText | None = None
    smem_bytes: ExpressionText = "0"
    when: ExpressionText = "1"
    overlaps: ExpressionText = "0"


class TensorMapForm(_Form):
    """``{name: map_a, matrix: A, box: [64, BM], swizzle: 128}``.

    ``box`` is [columns, rows] as stored, in elements; ``swizzle`` bytes. ``input`` is the one input
    of an epilogue that has C's shape and type (``tiled_input``). A map of the workspace
    also has an ``element`` type, its ``extent`` [columns, rows], ``ld``, and ``offset_bytes``. A
    map whose ``when`` is 0 is left out; it reads parameters only.
    """

    name: Identifier
    matrix: Literal["A", "B", "C", "input", "workspace"]
    box: Pair
    swizzle: ExpressionText = "0"
    element: str | None = None
    extent: Pair | None = None
    ld: ExpressionText | None = None
    offset_bytes: ExpressionText = "0"
    when: ExpressionText = "1"


class ArgumentForm(_Form):
    """``{name: bias, type: f32, extent: N, neutral: 0, doc: ...}``.

    An argument that kernels take behind those of the GEMM, and only read. ``type`` is an element
    type, or ``ab`` or ``c`` for that of the matrices; with an ``extent`` it is an array of so many
    elements, which begins at a multiple of 16 bytes, else one value. With ``neutral`` everywhere
    in it the kernels compute the plain GEMM: so they are tuned, verified and called by
    `autogemm.gemm`.
    """

    name: Identifier
    type: str
    extent: ExpressionText | None = None
    neutral: Annotated[float, Field(strict=False, allow_inf_nan=False)]
    doc: Text


class RenamedForm(_Form):
    """``OPERANDS: {to: SWAP_AB, values: {straight: 0, swapped: 1}}``.

    ``to`` is the parameter of today, left out where only values have new names; ``values`` has
    today's value for each old one that differs.
    """

    to: Identifier | None = None
    values: Annotated[dict[ParameterValue, ParameterValue], Field(max_length=MAX_VALUES)] = {}


class FamilyForm(_Form):
    """A whole file. ``dtypes`` has one element type or several for each of a, b, c, accumulate.

    ``searched`` says when `autogemm tune` looks here: ``always`` when a problem fits,
    ``with_emulation`` only where that is allowed (FP32 made of products of lower precision), or
    only ``by_name`` (--family), for what teaches something or serves a special purpose.

    ``retired`` has parameters of before and the value that says what is emitted today; ``renamed``
    has parameters and values that have other names today.
    """

    family: Identifier
    summary: Text
    dtypes: dict[str, Labels]
    architectures: Text
    searched: Literal["always", "with_emulation", "by_name"] = "always"
    parameters: Annotated[dict[Identifier, ParameterForm], Field(min_length=1, max_length=64)]
    retired: Annotated[dict[Identifier, ParameterValue], Field(max_length=64)] = {}
    renamed: Annotated[dict[Identifier, RenamedForm], Field(max_length=64)] = {}
    derive: Annotated[dict[Identifier, ExpressionText], Field(max_length=500)] = {}
    constraints: Annotated[list[ConstraintForm], Field(max_length=500)] = []
    worth_trying: Annotated[list[ConstraintForm], Field(max_length=500)] = []
    expected: Annotated[dict[Identifier, ExpressionText], Field(max_length=100)] = {}
    launch: Annotated[list[LaunchForm], Field(min_length=1, max_length=16)]
    workspace_bytes: ExpressionText = "0"
    fp32_every: ExpressionText = "0"
    tensor_maps: Annotated[list[TensorMapForm], Field(max_length=8)] = []
    arguments: Annotated[list[ArgumentForm], Field(max_length=8)] = []
    seeds: Annotated[list[dict[str, ParameterValue]], Field(max_length=MAX_SEEDS)] = []


class SeedGroupForm(_Form):
    """``{gpu: H100, problems: "4096, 64x4096x4096", note: ..., configs: [{BM: 128, ...}, ...]}``.

    ``problems`` has the sizes at which the configs were good, with the number of products of a
    batch (``128 batch=512``): near them they are tried first.
    ``gpu`` and ``note`` are for people.
    """

    gpu: Text | None = None
    problems: Text | int | None = None
    note: Text | None = None
    configs: Annotated[list[dict[str, ParameterValue]], Field(min_length=1, max_length=MAX_SEEDS)]

    @property
    def sizes(self) -> list[str]:
        """The problems' sizes, one by one."""
        return str(self.problems).split(",") if self.problems else []


class SeedsForm(_Form):
    """A whole file ``seeds/NAME.yaml``: what is tried first, nearest sizes in front."""

    family: Identifier
    seeds: Annotated[list[SeedGroupForm], Field(max_length=MAX_SEEDS)]


_FORMS: dict[object, type[BaseModel]] = {
    "parameters": ParameterForm,
    "renamed": RenamedForm,
    "constraints": ConstraintForm,
    "worth_trying": ConstraintForm,
    "launch": LaunchForm,
    "tensor_maps": TensorMapForm,
    "arguments": ArgumentForm,
    "seeds": SeedGroupForm,
}


def first_problem(error: ValidationError, form: type[BaseModel]) -> str:
    """Field, rule and value of one problem, and how many more there are. Positions count from 1."""
    # A misspelt field is missing under its right name as well: the misspelling says more.
    problems = sorted(error.errors(include_url=False), key=lambda p: p["type"] == "missing")
    first, place = problems[0], problems[0]["loc"]
    if not place:
        return f"this file is a mapping with the fields {' '.join(form.model_fields)}"
    parts = (str(part + 1 if isinstance(part, int) else part) for part in place if part != "[key]")
    rule = _rule(first["type"], first["msg"], (form, *place), first["input"])
    more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
    return f"{'.'.join(parts)}: {rule}{more}"


def _rule(kind: str, message: str, place: tuple[object, ...], value: object) -> str:
    form, first, *deeper = place
    if kind == "missing":
        return "this field must be there"
    if kind == "extra_forbidden":
        assert isinstance(form, type)
        assert issubclass(form, BaseModel)
        known = (_FORMS[first] if deeper else form).model_fields
        hint = did_you_mean(str(place[-1]), known) or f"; known: {' '.join(known)}"
        if value is None:
            hint += " (a comma ends a text between { and }: quote the text)"
        return f"there is no such field{hint}"
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return f"{message.removeprefix('Value error, ')}, got {shown}"
