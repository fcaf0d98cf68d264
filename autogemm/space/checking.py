"""Rules for a family's YAML beyond its form: names that exist, one type, no cycles."""

import re
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from autogemm.model.config import Value
from autogemm.model.dtypes import Element
from autogemm.model.signature import ArgumentType, ProblemType, gemm_signature
from autogemm.space.expressions.expression import Expression
from autogemm.space.expressions.nodes import FUNCTIONS
from autogemm.space.expressions.parsing import KEYWORDS, parse_expression
from autogemm.space.family import (
    DEVICE_NAMES,
    EXPECTED_TIME,
    EXTENT_NAMES,
    PROBLEM_NAMES,
    PROBLEM_TEXTS,
    ArgumentRule,
    Constraint,
    Family,
    LaunchRule,
    Parameter,
    Renamed,
    Searched,
    TensorMapRule,
)
from autogemm.space.schema import (
    ArgumentForm,
    ConstraintForm,
    FamilyForm,
    LaunchForm,
    RenamedForm,
    TensorMapForm,
)
from autogemm.space.tensor_maps import completed, element_of, rules_of
from autogemm.support.errors import FamilyError
from autogemm.support.naming import did_you_mean

# Names that mean something else in an expression, or stand in every kernel's signature.
RESERVED = {*KEYWORDS, *FUNCTIONS, *PROBLEM_NAMES, "device"}
RESERVED |= {*gemm_signature(workspace=True).names}
# The exported function has them beside the arguments of its kernels.
_OF_CALLERS = frozenset({"workspace_bytes", "stream"})

_SIZES = frozenset(EXTENT_NAMES)
# The target that a family asks for whose instructions one architecture alone has.
_SM_90A = "90a"
_ARCHITECTURE = re.compile(r"\s*(>=|<=|==|>|<)\s*(\d{2,3})\s*")
_OPERANDS = ("a", "b", "c", "accumulate")


def family_of(
    form: FamilyForm,
    *,
    yaml_path: Path,
    template_path: Path,
    yaml_sha256: str,
    template_sha256: str,
) -> Family:
    """The family that a well-formed file describes, yet without its seeds.

    Raises FamilyError naming file and field.
    """
    check = _Check(form, yaml_path)
    parameters = check.parameters()
    derive = check.derive()
    maps = check.tensor_maps()
    tensor_maps = tuple(check.tensor_map(i, one, derive) for i, one in enumerate(maps))
    arguments = tuple(check.argument(i, one, derive) for i, one in enumerate(form.arguments))
    return Family(
        name=form.family,
        summary=form.summary,
        dtypes=check.dtypes(),
        architectures=form.architectures,
        parameters=parameters,
        derive=derive,
        constraints=(
            *check.architectures(),
            *check.constraints("constraints", form.constraints),
            *(
                rule
                for i, one in enumerate(maps)
                for rule in check.constraints(f"tensor_maps.{i + 1}", rules_of(one))
            ),
        ),
        worth_trying=check.constraints("worth_trying", form.worth_trying),
        expected=check.expected(),
        launch=tuple(check.launch(i, rule, derive) for i, rule in enumerate(form.launch)),
        workspace_bytes=check.inlined("workspace_bytes", form.workspace_bytes, derive),
        fp32_every=check.inlined("fp32_every", form.fp32_every, derive),
        seeds=(),
        yaml_path=yaml_path,
        template_path=template_path,
        yaml_sha256=yaml_sha256,
        template_sha256=template_sha256,
        searched=Searched(form.searched),
        tensor_maps=tensor_maps,
        arguments=arguments,
        needs_sm_90a=form.architectures == _SM_90A,
        retired=check.retired(),
        renamed=check.renamed(parameters),
    )


class _Check:
    """One file on its way to a family. ``_kinds`` has the type of every name known so far."""

    def __init__(self, form: FamilyForm, yaml_path: Path) -> None:
        self._form = form
        self._yaml_path = yaml_path
        self._kinds: dict[str, type] = {
            name: str if name in PROBLEM_TEXTS else int for name in PROBLEM_NAMES
        }

    def _error(self, field: str, rule: str) -> FamilyError:
        return FamilyError(f"{self._yaml_path}: {field}: {rule}")

    def dtypes(self) -> dict[str, tuple[str, ...]]:
        """Names the operands' element types."""
        if set(self._form.dtypes) != set(_OPERANDS):
            found = " ".join(self._form.dtypes) or "none"
            raise self._error("dtypes", f"name the types of {' '.join(_OPERANDS)}, got {found}")
        known = [element.label for element in Element]
        for operand, labels in self._form.dtypes.items():
            for label in labels:
                if label not in known:
                    raise self._error(
                        f"dtypes.{operand}",
                        f"unknown element type {label!r}; known: {', '.join(known)}",
                    )
        return {operand: tuple(labels) for operand, labels in self._form.dtypes.items()}

    def retired(self) -> dict[str, Value]:
        """None of them is a name of today."""
        for name in self._form.retired:
            self._check_free(f"retired.{name}", name)
        return dict(self._form.retired)

    def renamed(self, parameters: tuple[Parameter, ...]) -> dict[str, Renamed]:
        """Old names and values are none of today's, new ones are: nothing is renamed twice."""
        known = {parameter.name: parameter for parameter in parameters}
        return {name: self._renamed(name, one, known) for name, one in self._form.renamed.items()}

    def _renamed(self, name: str, form: RenamedForm, known: Mapping[str, Parameter]) -> Renamed:
        field = f"renamed.{name}"
        if form.to is None and not form.values:
            raise self._error(field, "say the new name, to: NAME, or values: {OLD: NEW}")
        if form.to is not None:
            self._check_free(field, name)
            if name in self._form.retired:
                raise self._error(field, f"{name} is retired already, it cannot be renamed as well")
        current = known.get(form.to or name)
        if current is None:
            missing = form.to or name
            rule = f"no parameter is named {missing!r}{did_you_mean(missing, known)}"
            raise self._error(field, rule)
        for old, new in form.values.items():
            self._check_value(f"{field}.values.{old}", new, current)
            if form.to is None and current.allows(old):
                rule = f"{old!r} is a value of {name} today, only old ones are renamed"
                raise self._error(f"{field}.values", rule)
        return Renamed(current.name, dict(form.values))

    def parameters(self) -> tuple[Parameter, ...]:
        """Their values are distinct and of one type."""
        parameters = []
        for name, form in self._form.parameters.items():
            field = f"parameters.{name}"
            self._check_free(field, name)
            for earlier, value in enumerate(form.values):
                if value in form.values[:earlier]:
                    raise self._error(field, f"the value {value!r} is there twice, list it once")
            by_device = self._by_device(field, form.values)
            plain = tuple(v for v in form.values if not by_device or isinstance(v, int))
            kinds = {type(value) for value in plain} or {int}
            if len(kinds) > 1:
                text = next(value for value in plain if isinstance(value, str))
                raise self._error(field, f"values are all integers or all texts, got also {text!r}")
            parameter = Parameter(name, plain, form.doc, form.default, by_device)
            if form.default is not None:
                self._check_value(f"{field}.default", form.default, parameter)
            self._kinds[name] = kinds.pop()
            parameters.append(parameter)
        return tuple(parameters)

    def _by_device(self, field: str, values: Sequence[Value]) -> tuple[Expression, ...]:
        """All values as expressions, where any reads the device; else none."""
        known = dict.fromkeys(DEVICE_NAMES, int)
        texts = [str(value) for value in values]
        if not any("device." in text for text in texts):
            return ()
        found = tuple(self._parsed(f"{field}.values", text, known) for text in texts)
        for expression in found:
            self._check_number(expression, known)
        return found

    def derive(self) -> dict[str, Expression]:
        """Ordered so that each reads earlier ones only."""
        return self._ordered("derive", self._form.derive, {})

    def expected(self) -> dict[str, Expression]:
        """Ordered as what is derived, which it may read, and the device."""
        texts = self._form.expected
        if texts and EXPECTED_TIME not in texts:
            raise self._error("expected", f"it has no {EXPECTED_TIME}, for which it is there")
        # Other parts of the file do not know these names.
        before = dict(self._kinds)
        found = self._ordered("expected", texts, dict.fromkeys(DEVICE_NAMES, int))
        self._kinds = before
        return found

    def _ordered(
        self, field: str, texts: Mapping[str, str], beside: Mapping[str, type]
    ) -> dict[str, Expression]:
        for name in texts:
            self._check_free(f"{field}.{name}", name)
        known = {*self._kinds, *texts, *beside}
        parsed = {name: self._parsed(f"{field}.{name}", texts[name], known) for name in texts}
        needs = {name: sorted(parsed[name].names & texts.keys()) for name in texts}
        try:
            order = list(TopologicalSorter(needs).static_order())
        except CycleError as error:
            cycle = " needs ".join(reversed(error.args[1]))
            raise self._error(field, f"a cycle: {cycle}; break it") from None
        for name in order:
            self._kinds[name] = parsed[name].kind({**self._kinds, **beside})
        return {name: parsed[name] for name in order}

    def architectures(self) -> tuple[Constraint, ...]:
        """``>=80``, ``>=80, <100`` or ``90a`` as constraints on the device."""
        origin = f"{self._yaml_path}: architectures"
        if self._form.architectures == _SM_90A:
            rule = parse_expression("device.arch == 90", origin)
            return (Constraint(rule, "instructions of compute capability 9.0 alone (sm_90a)"),)
        constraints = []
        for part in self._form.architectures.split(","):
            match = _ARCHITECTURE.fullmatch(part)
            if match is None:
                raise self._error(
                    "architectures",
                    f"write comparisons like '>=80' or '>=80, <100', or 90a, got {part.strip()!r}",
                )
            rule = parse_expression(f"device.arch {match[1]} {match[2]}", origin)
            constraints.append(Constraint(rule, "the architectures that the family is written for"))
        return tuple(constraints)

    def constraints(self, field: str, forms: Sequence[ConstraintForm]) -> tuple[Constraint, ...]:
        """Rules that are numbers, and may read the device."""
        known = {**self._kinds, **dict.fromkeys(DEVICE_NAMES, int)}
        constraints = []
        for position, form in enumerate(forms, start=1):
            rule = self._parsed(f"{field}.{position}", form.require, known)
            self._check_number(rule, known)
            constraints.append(Constraint(rule, form.because))
        return tuple(constraints)

    def launch(self, i: int, form: LaunchForm, derive: dict[str, Expression]) -> LaunchRule:
        """Grid, block and shared memory as expressions of parameters and the problem."""
        field = f"launch.{i + 1}"
        return LaunchRule(
            kernel=form.kernel,
            grid=tuple(self.inlined(f"{field}.grid", text, derive) for text in form.grid),
            fewest=(self.inlined(f"{field}.fewest", form.fewest, derive) if form.fewest else None),
            threads=tuple(self.inlined(f"{field}.threads", text, derive) for text in form.threads),
            smem_bytes=self.inlined(f"{field}.smem_bytes", form.smem_bytes, derive),
            when=self._of_config(f"{field}.when", form.when),
            overlaps=self._of_config(f"{field}.overlaps", form.overlaps),
        )

    def tensor_maps(self) -> tuple[TensorMapForm, ...]:
        """The maps, with all that follows from their matrices; their names are free."""
        forms: list[TensorMapForm] = []
        for i, form in enumerate(self._form.tensor_maps):
            field = f"tensor_maps.{i + 1}"
            self._check_free(f"{field}.name", form.name)
            # Maps of one name are maps of one argument: at most one of them is there.
            others = (one.name for one in forms if "1" in {one.when, form.when})
            if form.name in (*self._form.derive, *others):
                raise self._error(f"{field}.name", f"the name {form.name!r} is taken already")
            try:
                element_of(form)
                forms.append(completed(form))
            except FamilyError as error:
                raise self._error(field, str(error)) from None
        return tuple(forms)

    def tensor_map(
        self, i: int, form: TensorMapForm, derive: dict[str, Expression]
    ) -> TensorMapRule:
        """A map's fields as expressions of parameters and the problem."""

        def inlined(field: str, text: str | None) -> Expression:
            assert text is not None, "completed"
            return self.inlined(f"tensor_maps.{i + 1}.{field}", text, derive)

        swizzle = inlined("swizzle", form.swizzle)
        if sizes := sorted(swizzle.names & _SIZES):
            raise swizzle.error(
                f"a swizzle belongs to the config: it cannot read {' '.join(sizes)}"
            )
        columns, rows = form.extent or ("", "")
        when = self._of_config(f"tensor_maps.{i + 1}.when", form.when)
        if form.matrix == "input":
            # A problem without such an input has no such map, whatever the config.
            when = inlined("when", f"({form.when}) and tiled_input == 1")
        return TensorMapRule(
            name=form.name,
            matrix=form.matrix,
            element=element_of(form),
            extent=(inlined("extent", columns), inlined("extent", rows)),
            ld=inlined("ld", form.ld),
            box=(inlined("box", form.box[0]), inlined("box", form.box[1])),
            swizzle=swizzle,
            offset_bytes=inlined("offset_bytes", form.offset_bytes),
            when=when,
        )

    def argument(self, i: int, form: ArgumentForm, derive: dict[str, Expression]) -> ArgumentRule:
        """A name that is free, an element type, an extent of parameters and the problem."""
        field = f"arguments.{i + 1}"
        self._check_free(f"{field}.name", form.name)
        maps = (one.name for one in self._form.tensor_maps)
        earlier = (one.name for one in self._form.arguments[:i])
        if form.name in (*derive, *maps, *earlier, *_OF_CALLERS):
            raise self._error(f"{field}.name", f"the name {form.name!r} is taken already")
        extent = form.extent
        if extent is None and form.type != Element.F32.label:
            raise self._error(f"{field}.type", f"one value is f32, got {form.type!r}")
        types: dict[str, ArgumentType] = {one.value: one for one in (ProblemType.AB, ProblemType.C)}
        types |= {element.label: element for element in Element}
        if form.type not in types:
            known = ", ".join(types)
            raise self._error(f"{field}.type", f"unknown type {form.type!r}; known: {known}")
        return ArgumentRule(
            name=form.name,
            type=types[form.type],
            extent=None if extent is None else self.inlined(f"{field}.extent", extent, derive),
            neutral=form.neutral,
            doc=form.doc,
        )

    def _of_config(self, field: str, text: str) -> Expression:
        expression = self._parsed(field, text, self._form.parameters)
        self._check_number(expression, self._kinds)
        return expression

    def inlined(self, field: str, text: str, derive: dict[str, Expression]) -> Expression:
        """With derived names replaced, so that the exported host code can compute it."""
        expression = self._parsed(field, text, self._kinds)
        self._check_number(expression, self._kinds)
        for name in reversed(derive):
            if name in expression.names:
                expression = expression.substitute({name: derive[name]})
        return expression

    def _check_value(self, field: str, value: Value, parameter: Parameter) -> None:
        if not parameter.allows(value):
            listed = " ".join(parameter.texts)
            raise self._error(field, f"{value!r} is not one of its values: {listed}")

    def _parsed(self, field: str, text: str, known: Iterable[str]) -> Expression:
        expression = parse_expression(text, f"{self._yaml_path}: {field}")
        for name in sorted(expression.names.difference(known)):
            if name in DEVICE_NAMES:
                raise expression.error(
                    f"{name} is for constraints and what is expected: kernels and launches are "
                    "the same on all"
                )
            hint = did_you_mean(name, known) or f"; known: {' '.join(sorted(known))}"
            raise expression.error(f"unknown name {name!r}{hint}")
        return expression

    def _check_number(self, expression: Expression, kinds: Mapping[str, type]) -> None:
        if expression.kind(kinds) is not int:
            raise expression.error("must be a number, is a text")

    def _check_free(self, field: str, name: str) -> None:
        if name in RESERVED:
            raise self._error(field, f"the name {name!r} is reserved, choose another")
        if name in self._kinds:
            raise self._error(field, f"the name {name!r} is taken by a parameter, choose another")
