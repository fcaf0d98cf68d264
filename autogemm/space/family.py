"""A family of kernels as values: parameters, derived quantities, constraints, launches, seeds."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from autogemm.model.config import Config, Value
from autogemm.model.dtypes import DType, Element
from autogemm.model.hardware.device import FACTS, Device
from autogemm.model.problem import Problem
from autogemm.model.signature import (
    EXTENT_KINDS,
    PLAIN,
    Argument,
    ArgumentKind,
    ArgumentType,
    extents,
)
from autogemm.space.expressions.evaluation import Operand
from autogemm.space.expressions.expression import Expression
from autogemm.support.errors import UsageError
from autogemm.support.limits import WORD

EXTENT_NAMES = tuple(argument.name for argument in PLAIN.of_kind(*EXTENT_KINDS))
# Values become `constexpr int`.
MAX_VALUE = 2**31 - 1

PROBLEM_NAMES = (
    *EXTENT_NAMES,
    *("trans_a", "trans_b", "bytes_ab", "bytes_c", "dtype_ab", "dtype_c", "gate", "batch"),
    *("groups", "divides_k", "tiled_input", "block_scales", "special"),
)
PROBLEM_TEXTS = frozenset({"dtype_ab", "dtype_c", "gate"})
DEVICE_NAMES = tuple(f"device.{name}" for name in FACTS)
# log2 of it is a feature of that name: what times are thought to be proportional to.
EXPECTED_TIME = "expected_time"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A searched parameter: a name, its values in the order of their rank, and its meaning.

    ``default`` is what a config has that does not name the parameter: a seed, or a recording made
    before the parameter was there. None where it must be named.

    Where values follow from the GPU, ``by_device`` has all of them as expressions over
    ``device.*``, and ``values`` those that are the same on every GPU; `on` puts the GPU's in place.
    """

    name: str
    values: tuple[Value, ...]
    doc: str
    default: Value | None = None
    by_device: tuple[Expression, ...] = ()

    @property
    def is_numeric(self) -> bool:
        """Whether the values are integers; otherwise they are texts."""
        return bool(self.by_device) or isinstance(self.values[0], int)

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as written, for messages."""
        return tuple(one.text for one in self.by_device) or tuple(map(str, self.values))

    def allows(self, value: Value) -> bool:
        """Whether a config may have that value on some GPU, from which values may follow."""
        follows = bool(self.by_device) and isinstance(value, int) and 0 < value <= MAX_VALUE
        # JSON's true is no 1, and its 128.0 no 128.
        return self.is_safe(value) and (value in self.values or follows)

    def is_safe(self, value: object) -> bool:
        """Whether the value has the parameter's type: an integer of 32 bits, or a word.

        Configs come from files and databases of others, and their values become text of a kernel.
        """
        if self.is_numeric:
            return type(value) is int and abs(value) <= MAX_VALUE
        return type(value) is str and WORD.fullmatch(value) is not None

    @property
    def kind(self) -> str:
        """The type of its values, for messages."""
        return "an integer of 32 bits" if self.is_numeric else "a word"

    def on(self, device: Device) -> "Parameter":
        """With the values that it has on that GPU. Raises FamilyError for one of over 32 bits."""
        if not self.by_device:
            return self
        known = device_values(device)
        values = tuple(dict.fromkeys(_on_device(one, known) for one in self.by_device))
        return replace(self, values=values, by_device=())


@dataclass(frozen=True, slots=True)
class Renamed:
    """An old parameter's name of today, and today's value for each old one that differs."""

    to: str
    values: Mapping[Value, Value]


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
    ``when``, which says whether this config has the launch, and ``overlaps`` read parameters alone.
    ``fewest`` blocks may do the work of the grid; None where each block has work of its own.
    """

    kernel: str
    grid: tuple[Expression, ...]
    fewest: Expression | None
    threads: tuple[Expression, ...]
    smem_bytes: Expression
    when: Expression
    overlaps: Expression


@dataclass(frozen=True, slots=True)
class TensorMapRule:
    """One `TensorMap` in expressions; ``element`` is None where the matrix's own type counts.

    ``when``, which says whether this config has it, reads parameters alone.
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

    def is_divided(self, problem: Problem) -> bool:
        """Whether the matrix's rows belong to the problem's groups."""
        if problem.groups.is_none:
            return False
        return self.matrix in ({"A", "B"} if problem.divides_k else {"A", "C"})

    def element_for(self, dtype: DType) -> Element:
        """The type of the map's elements in a problem of those types."""
        if self.element is not None:
            return self.element
        of_matrix = {"B": dtype.b, "C": dtype.c, "input": dtype.c}
        return of_matrix.get(self.matrix, dtype.ab)


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """An argument of the family's own: an array of ``extent`` elements, or one value (None).

    Kernels that find ``neutral`` in all of it compute the plain GEMM.
    """

    name: str
    type: ArgumentType
    extent: Expression | None
    neutral: float
    doc: str
    is_input: bool = False
    """Whether it is an input of the problem's epilogue, for which no number is neutral."""
    is_output: bool = False
    """Whether it is the second output of the problem's epilogue, which kernels write."""

    @property
    def argument(self) -> Argument:
        """The argument in the signature."""
        is_array = self.extent is not None
        is_const = is_array and not self.is_output
        return Argument(
            self.name, ArgumentKind.EXTRA, self.doc, self.type, is_array=is_array, is_const=is_const
        )


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

    ``template_sha256`` covers the template and all that it includes or imports. A family that
    others recorded has no template (``template_path`` None, ``template_sha256`` empty): its configs
    can be searched, not rendered.
    """

    name: str
    summary: str
    dtypes: Mapping[str, tuple[str, ...]]
    """The element types of A, B, C and accum that there are kernels for."""
    architectures: str
    parameters: tuple[Parameter, ...]
    derive: dict[str, Expression]
    constraints: tuple[Constraint, ...]
    worth_trying: tuple[Constraint, ...]
    """Rules that only keep the search from wasting trials: a config that breaks one is right."""
    launch: tuple[LaunchRule, ...]
    workspace_bytes: Expression
    fp32_every: Expression
    """Products of 8-bit floats after which tensor cores' sums are added to others in FP32: 0 for
    never, 1 where all sums are in FP32.
    """
    seeds: tuple[Config, ...]
    """Configs that are tried first: those that were good at sizes near the problem's, then those
    of which no size is known, in this order.
    """
    yaml_path: Path
    template_path: Path | None
    yaml_sha256: str
    template_sha256: str
    seed_origins: tuple[str, ...] = ()
    """The GPU and the problems that each seed was good for, as far as is known."""
    seed_sizes: tuple[tuple[tuple[int, int, int, int], ...], ...] = ()
    """The (m, n, k, products) that each seed was good at, as far as is known."""
    searched: Searched = Searched.ALWAYS
    expected: Mapping[str, Expression] = field(default_factory=dict)
    """The expressions of the expected time: `EXPECTED_TIME` and, before it, those that it reads.

    They are ordered as `derive` and may read the device.
    """
    tensor_maps: tuple[TensorMapRule, ...] = ()
    arguments: tuple[ArgumentRule, ...] = ()
    """The arguments that its kernels take beside those of a GEMM."""
    needs_sm_90a: bool = False
    """Whether every kernel is for the target sm_90a."""
    retired: Mapping[str, Value] = field(default_factory=dict)
    """Parameters of before, and the value with which a config says what is emitted today."""
    renamed: Mapping[str, Renamed] = field(default_factory=dict)
    """Parameters of before, or of which values had other names, and what they are today."""
    _orders: dict[frozenset[str], tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The derived ones that names need, as `derived_for` has found them."""

    @property
    def expressions_sha256(self) -> str:
        """The hash of all that it derives and expects."""
        expressions = (*self.derive.items(), *self.expected.items())
        text = "\n".join(f"{name}: {expression}" for name, expression in expressions)
        return hashlib.sha256(text.encode()).hexdigest()

    def on(self, device: Device) -> "Family":
        """The family whose parameters have the values that they have on that GPU."""
        if not any(one.by_device for one in self.parameters):
            return self
        return replace(self, parameters=tuple(one.on(device) for one in self.parameters))

    def current_names(self, columns: Iterable[str]) -> dict[str, str]:
        """Today's name of each of these parameters, by the name that it has there.

        Raises UsageError where two of them are one parameter today.
        """
        names = {name: self._renamed(name).to for name in columns}
        for name, current in names.items():
            if current != name and list(names.values()).count(current) > 1:
                others = " and ".join(old for old, new in names.items() if new == current)
                raise UsageError(f"{others} are one parameter of {self.name!r}: name it once")
        return names

    def current_name(self, name: str) -> str:
        """Today's name of the parameter then named ``name``."""
        return self._renamed(name).to

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of that name; None where there is none."""
        return next((one for one in self.parameters if one.name == name), None)

    def current_value(self, name: str, value: Value) -> Value:
        """Today's value of that value of the parameter then named ``name``.

        A value that is neither integer nor text (a mistake in JSON) stays as it is.
        """
        return self._renamed(name).values.get(value, value) if type(value) in (int, str) else value

    def current(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The values of a config by today's names: renamed ones replaced, retired ones left out
        where they say what is emitted today.

        Raises UsageError for a parameter that is there by two names.
        """
        return {
            current: self.current_value(name, values[name])
            for name, current in self.current_names(values).items()
            if self.retired.get(name) != values[name]
        }

    def _renamed(self, name: str) -> Renamed:
        return self.renamed.get(name) or Renamed(name, {})

    def completed(self, config: Config) -> Config:
        """The config in the family's order, with the defaults of parameters that it does not name:
        it was made before those were there. Renamed parameters and values have today's names;
        retired parameters are left out, where they say what is emitted today.

        Raises UsageError for a config that is none of the family's, by its names or by the types of
        its values.
        """
        if self._is_current(config):
            return config
        defaults = {one.name: one.default for one in self.parameters if one.default is not None}
        values = defaults | self.current(config.as_dict())
        names = [parameter.name for parameter in self.parameters]
        if config.family != self.name or values.keys() != set(names):
            raise UsageError(
                f"{config.label!r:.300} of family {config.family!r:.60} is not a config of "
                f"{self.name!r}, which has the parameters {' '.join(names)}"
            )
        for one in self.parameters:
            if not one.is_safe(values[one.name]):
                raise UsageError(
                    f"{one.name}={values[one.name]!r:.60} is not a value of {self.name!r}: "
                    f"{one.name} is {one.kind}"
                )
        return Config.of(self.name, {name: values[name] for name in names})

    def _is_current(self, config: Config) -> bool:
        """Whether `completed` has nothing to change: most configs, which are asked for often."""
        if config.family != self.name or len(config.values) != len(self.parameters):
            return False
        for (name, value), parameter in zip(config, self.parameters, strict=True):
            renamed = self.renamed.get(name)
            is_old = renamed is not None and (renamed.to != name or value in renamed.values)
            if name != parameter.name or is_old or not parameter.is_safe(value):
                return False
        return self.retired.keys().isdisjoint(one.name for one in self.parameters)

    def declared(self, config: Config) -> Config:
        """The config as `completed` gives it, of which every value is one that the family declares.

        A value that follows from the GPU may be that of any GPU. Raises UsageError for others.
        """
        found = self.completed(config)
        for one in self.parameters:
            if not one.allows(found[one.name]):
                listed = " ".join(one.texts)
                raise UsageError(
                    f"{one.name}={found[one.name]} is not a value of {self.name!r} today, it has: "
                    f"{listed:.200}"
                )
        return found

    def fits(self, dtype: DType) -> bool:
        """Whether there are kernels for matrices of these element types, as far as is known."""
        wanted = {"a": dtype.ab.label, "b": dtype.b.label, "c": dtype.c.label}
        return all(label in self.dtypes.get(name, (label,)) for name, label in wanted.items())

    @property
    def takes_batches(self) -> bool:
        """Whether a launch makes all products of a batch: its grid counts them."""
        return self._counts("batch")

    @property
    def takes_groups(self) -> bool:
        """Whether rows may belong to groups: its grid has room for a last tile of each."""
        return self._counts("groups")

    @property
    def divides_k(self) -> bool:
        """Whether groups may divide K: its grid counts them as products."""
        return self._counts("divides_k")

    def refuses_groups(self, problem: Problem) -> str:
        """Why it has no kernel for the problem's groups; empty where it has, or there are none."""
        if problem.groups.is_none:
            return ""
        if problem.divides_k and not self.divides_k:
            return f"{self.name} has no groups that divide K, as in layout {problem.layout}"
        return "" if self.takes_groups else f"{self.name} has one B for all rows"

    def _counts(self, name: str) -> bool:
        return any(name in extent.names for launch in self.launch for extent in launch.grid)

    @property
    def rules(self) -> tuple[Constraint, ...]:
        """All that a config of a search space keeps."""
        return (*self.constraints, *self.worth_trying)

    def derived_for(self, names: Iterable[str]) -> tuple[tuple[str, ...], frozenset[str]]:
        """The derived ones that these names need, in order, and all other names below them."""
        needed = set(names)
        for name in reversed(self.derive):
            if name in needed:
                needed |= self.derive[name].names
        derived = tuple(name for name in self.derive if name in needed)
        return derived, frozenset(needed.difference(self.derive))

    def parameters_below(self, names: Iterable[str]) -> frozenset[str]:
        """The parameters among these names, and those that derived ones among them follow from."""
        return self.derived_for(names)[1] & {parameter.name for parameter in self.parameters}

    @property
    def launch_parameters(self) -> frozenset[str]:
        """The parameters that decide how kernels are launched, or what they are given.

        Whether there is a map of an epilogue's input is left to templates, which read it where
        there is such an input: it does not shape the other kernels.
        """
        expressions = [self.workspace_bytes]
        for launch in self.launch:
            expressions += [*launch.grid, *launch.threads, launch.smem_bytes]
            expressions += [launch.when, launch.overlaps]
        for one in self.tensor_maps:
            expressions += [*one.extent, one.ld, *one.box, one.swizzle, one.offset_bytes]
            expressions += [one.when] if one.matrix != "input" else []
        return self.parameters_below(name for one in expressions for name in one.names)

    def overlaps(self, config: Config) -> bool:
        """Whether a kernel of this config may begin before the one before it has ended."""
        given: dict[str, Operand] = dict(config.values)
        return any(launch.overlaps.evaluate(given) for launch in self.launch)

    def value_of(self, expression: Expression, given: dict[str, Operand]) -> Operand:
        """The expression, with the derived names that it needs added to ``given``."""
        names = expression.names
        order = self._orders.get(names)
        if order is None:
            order = self._orders[names] = self.derived_for(names)[0]
        for name in order:
            if name not in given:
                given[name] = self.derive[name].evaluate(given)
        return expression.evaluate(given)


def problem_values(problem: Problem) -> dict[str, Value]:
    """A problem as a search space reads it: extents, and what `specialised_values` has."""
    return {**extents(problem), **specialised_values(problem)}


def specialised_values(problem: Problem) -> dict[str, Value]:
    """Transpositions, element types and facts of the epilogue, which are constants of a kernel's
    text; and the single product where there is no batch, no group where there are none.
    """
    dtype = problem.dtype
    return {
        **({"batch": 1} if problem.batch.is_one else {}),
        **({"groups": 0} if problem.groups.is_none else {}),
        "divides_k": int(problem.divides_k),
        "trans_a": int(problem.layout.trans_a),
        "trans_b": int(problem.layout.trans_b),
        "bytes_ab": dtype.ab.size_bytes,
        "bytes_c": dtype.c.size_bytes,
        "dtype_ab": dtype.ab.label,
        "dtype_c": dtype.c.label,
        "gate": str(problem.epilogue.gate),
        "tiled_input": int(problem.epilogue.tiled_input(dtype) is not None),
        "block_scales": int(bool(problem.epilogue.scales)),
        "special": problem.epilogue.special_instructions,
    }


def device_values(device: Device) -> dict[str, int]:
    """A device as a constraint reads it: its limits as ``device.<limit>``."""
    return {f"device.{name}": value for name, value in device.limits().items()}


def _on_device(expression: Expression, known: Mapping[str, Operand]) -> int:
    value = expression.evaluate(known)
    assert isinstance(value, int)
    if abs(value) > MAX_VALUE:
        raise expression.error(f"a value must fit 32 bits, is {value}")
    return value
