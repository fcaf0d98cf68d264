"""A family of kernels as values: parameters, derived quantities, constraints, launches, seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType, Element
from autogemm.model.hardware.device import FACTS, Device
from autogemm.model.problem import Problem
from autogemm.space.expressions.evaluation import Operand
from autogemm.space.expressions.expression import Expression
from autogemm.support.errors import UsageError

PROBLEM_NAMES = (
    *("M", "N", "K", "lda", "ldb", "ldc", "trans_a", "trans_b", "bytes_ab", "bytes_c"),
    *("dtype_ab", "dtype_c"),
)
PROBLEM_TEXTS = frozenset({"dtype_ab", "dtype_c"})
DEVICE_NAMES = tuple(f"device.{name}" for name in FACTS)


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is searched: a name, its values in the order of their rank, and what it means.

    ``default`` is what a config has that does not name the parameter: a seed, or a recording made
    before the parameter was there. None where it must be named.
    """

    name: str
    values: tuple[Value, ...]
    doc: str
    default: Value | None = None

    @property
    def is_numeric(self) -> bool:
        """Whether the values are integers; otherwise they are texts."""
        return isinstance(self.values[0], int)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A rule that legal configs keep, and why."""

    require: Expression
    because: str

    def __str__(self) -> str:
        return f"{self.require.text}: {self.because}"


@dataclass(frozen=True, slots=True)
class LaunchRule:
    """One kernel launch. Grid and block have one to three extents (x, y, z), in blocks and threads.

    Derived quantities are put in place: the expressions read parameters and the problem only;
    ``when``, which says whether this config has the launch, reads parameters alone. ``fewest``
    blocks may do the work of the grid; None where each block has work of its own.
    """

    kernel: str
    grid: tuple[Expression, ...]
    fewest: Expression | None
    threads: tuple[Expression, ...]
    smem_bytes: Expression
    when: Expression


@dataclass(frozen=True, slots=True)
class TensorMapRule:
    """One `TensorMap` in expressions; ``element`` is None where the
    matrix's own type counts. ``when``, which says whether this config has it, reads parameters
    alone.
    """

    name: str
    matrix: str
    element: Element | None
    extent: tuple[Expression, Expression]
    ld: Expression
    box: tuple[Expression, Expression]
    swizzle: Expression
    offset_bytes: Expression
    when: Expression

    def element_for(self, dtype: DType) -> Element:
        """What the map's elements are in a problem of those types."""
        return self.element or (dtype.c if self.matrix == "C" else dtype.ab)


class Searched(StrEnum):
    """When a family is searched: whenever a problem fits, there only where emulated arithmetic is
    allowed, or only if it is named.
    """

    ALWAYS = "always"
    WITH_EMULATION = "with_emulation"
    BY_NAME = "by_name"


@dataclass(frozen=True, slots=True)
class Family:
    """``NAME.yaml`` and ``NAME.cu.jinja``. ``derive`` is ordered: each reads earlier ones only.

    ``template_sha256`` covers the template and the shared parts that it may include. A family that
    others recorded has no template (``template_path`` None, ``template_sha256`` empty): its configs
    can be searched, not rendered.
    """

    name: str
    summary: str
    dtypes: Mapping[str, tuple[str, ...]]
    """Of A, B, C and the sums: the element types that there are kernels for."""
    architectures: str
    parameters: tuple[Parameter, ...]
    derive: dict[str, Expression]
    constraints: tuple[Constraint, ...]
    worth_trying: tuple[Constraint, ...]
    """Rules that only keep the search from wasting trials: a config that breaks one is right."""
    launch: tuple[LaunchRule, ...]
    workspace_bytes: Expression
    seeds: tuple[Config, ...]
    yaml_path: Path
    template_path: Path | None
    yaml_sha256: str
    template_sha256: str
    searched: Searched = Searched.ALWAYS
    tensor_maps: tuple[TensorMapRule, ...] = ()
    needs_sm_90a: bool = False
    """Whether every kernel is for the target sm_90a."""
    retired: Mapping[str, Value] = field(default_factory=dict)
    """Parameters of before, and the value with which a config says what is emitted today."""

    def completed(self, config: Config) -> Config:
        """The config in the family's order, with the defaults of parameters that it does not name:
        it was made before those were there. Without parameters that are retired, where it has what
        is emitted today.

        Raises UsageError for a config that is none of the family's.
        """
        values = {
            parameter.name: parameter.default
            for parameter in self.parameters
            if parameter.default is not None
        } | {
            name: value
            for name, value in config.as_dict().items()
            if self.retired.get(name) != value
        }
        names = [parameter.name for parameter in self.parameters]
        if config.family != self.name or values.keys() != set(names):
            raise UsageError(
                f"{config.label!r} of family {config.family!r} is no config of {self.name!r}, "
                f"which has the parameters {' '.join(names)}"
            )
        return Config.of(self.name, {name: values[name] for name in names})

    def fits(self, dtype: DType) -> bool:
        """Whether there are kernels for matrices of these element types, as far as is known."""
        wanted = {"a": dtype.ab, "b": dtype.ab, "c": dtype.c}
        return all(
            element.label in self.dtypes.get(operand, (element.label,))
            for operand, element in wanted.items()
        )

    @property
    def rules(self) -> tuple[Constraint, ...]:
        """All that a config of a search space keeps."""
        return (*self.constraints, *self.worth_trying)

    def derived_for(self, expression: Expression) -> tuple[tuple[str, ...], frozenset[str]]:
        """The derived names that an expression needs, in order, and all names below them."""
        needed = set(expression.names)
        for name in reversed(self.derive):
            if name in needed:
                needed |= self.derive[name].names
        derived = tuple(name for name in self.derive if name in needed)
        return derived, frozenset(needed.difference(self.derive))

    def value_of(self, expression: Expression, given: dict[str, Operand]) -> Operand:
        """The expression, with the derived names that it needs added to ``given``."""
        for name in self.derived_for(expression)[0]:
            if name not in given:
                given[name] = self.derive[name].evaluate(given)
        return expression.evaluate(given)


def problem_values(problem: Problem) -> dict[str, Value]:
    """What a search space can read of a problem: sizes, leading dimensions, and what its text is
    specialised for (`specialised_values`).
    """
    sizes = {"M": problem.m, "N": problem.n, "K": problem.k}
    strides = {"lda": problem.lda, "ldb": problem.ldb, "ldc": problem.ldc}
    return {**sizes, **strides, **specialised_values(problem)}


def specialised_values(problem: Problem) -> dict[str, Value]:
    """Transpositions and element types, which are constants of a kernel's text."""
    dtype = problem.dtype
    return {
        "trans_a": int(problem.layout.trans_a),
        "trans_b": int(problem.layout.trans_b),
        "bytes_ab": dtype.ab.size_bytes,
        "bytes_c": dtype.c.size_bytes,
        "dtype_ab": dtype.ab.label,
        "dtype_c": dtype.c.label,
    }


def device_values(device: Device) -> dict[str, int]:
    """What a constraint can read of a device: its limits as ``device.<limit>``."""
    return {f"device.{name}": value for name, value in device.limits().items()}
