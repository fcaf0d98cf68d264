"""Search spaces written down: a family's as T1, for one problem and GPU; a T1 space as a family's
YAML.

T1 knows neither sizes, devices nor derived quantities: they are put in place, so a T1 file is of
the problem and GPU that it was made for.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from autogemm.formats.t1 import T1Space
from autogemm.formats.t1_conditions import MAX_CHARS, some_values
from autogemm.model.config import Value
from autogemm.model.dtypes import DType
from autogemm.model.signature import extents, factors, gemm_signature
from autogemm.space import (
    Constraint,
    Expression,
    Parameter,
    Space,
    device_values,
    parse_expression,
    problem_values,
)
from autogemm.space.expressions import python_text
from autogemm.support.errors import FamilyError

FORMAT_VERSION = 1

_MISTAKEN = re.compile(r"//|-|\(| if ")


def t1_text(space: Space) -> tuple[str, tuple[str, ...]]:
    """The T1 file of a space, and what it cannot say of the family, a line each.

    Raises FamilyError for a condition that cannot be guarded against dividing by zero.
    """
    writing = _Writing(space)
    content = {
        "General": {"FormatVersion": FORMAT_VERSION},
        "ConfigurationSpace": {
            "TuningParameters": [writing.parameter(one) for one in space.parameters],
            "Conditions": list(writing.conditions()),
        },
        "KernelSpecification": writing.kernel(),
    }
    return json.dumps(content, indent=2) + "\n", tuple(writing.left_out())


class _Writing:
    """One space on its way out."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._parameters = {parameter.name: parameter for parameter in space.parameters}
        self._constants: dict[str, Value] = {
            **problem_values(space.problem),
            **device_values(space.device),
        }
        self._derived: dict[str, Expression] = {}
        for name, expression in space.family.derive.items():
            self._derived[name] = expression.substitute(self._derived)

    def parameter(self, parameter: Parameter) -> dict[str, Any]:
        """Values as a Python list; the default is that of the first seed."""
        found: dict[str, Any] = {
            "Name": parameter.name,
            "Type": "int" if parameter.is_numeric else "string",
            "Values": repr(list(parameter.values)),
        }
        if self._space.seeds:
            found["Default"] = self._space.config(self._space.seeds[0])[parameter.name]
        return found

    def conditions(self) -> Iterator[dict[str, Any]]:
        """The rules in order, with the values of problem and device put in place.

        The rules are applied one after the other here, and each alone elsewhere: one that earlier
        rules keep from dividing by zero takes these with it.
        """
        earlier: list[Expression] = []
        for rule in self._space.family.rules:
            condition = _parsed(self._text(rule.require), rule)
            if not condition.names:
                # Sizes and limits decide it, and the space is not empty.
                continue
            guards = [one for one in earlier if one.names <= condition.names]
            earlier.append(condition)
            if self._divides_by_zero(condition):
                parts = " and ".join(f"({one})" for one in (*guards, condition))
                condition = _parsed(parts, rule)
                if self._divides_by_zero(condition):
                    raise condition.error("divides by zero where no earlier rule forbids it")
            names = [name for name in self._parameters if name in condition.names]
            yield {"Parameters": names, "Expression": _plain_to_others(str(condition))}

    def _divides_by_zero(self, condition: Expression) -> bool:
        try:
            condition.evaluate(some_values(condition.root, self._parameters))
        except FamilyError:
            return True
        return False

    def _text(self, expression: Expression) -> str:
        return python_text(expression.substitute(self._derived).root, self._constants)

    def kernel(self) -> dict[str, Any]:
        """The first launch and the signature."""
        space = self._space
        found: dict[str, Any] = {
            "Language": "CUDA",
            "KernelName": space.family.name,
            "KernelFile": f"{space.family.name}.cu",
            "GlobalSizeType": "CUDA",
            "GlobalSize": {"X": "1"},
            "LocalSize": {"X": "1"},
            "Device": {"Name": space.device.name},
            "Arguments": list(self._arguments()),
        }
        if space.family.launch:
            first = space.family.launch[0]
            found["KernelName"] = first.kernel
            found["GlobalSize"] = dict(zip("XYZ", map(self._text, first.grid), strict=False))
            found["LocalSize"] = dict(zip("XYZ", map(self._text, first.threads), strict=False))
        return found

    def _arguments(self) -> Iterator[dict[str, Any]]:
        problem = self._space.problem
        rules = {rule.name: rule for rule in self._space.family.arguments}
        rows = {"A": problem.a_shape[0], "B": problem.b_shape[0], "C": problem.m}
        elements: dict[str, int | str] = {
            name: count * getattr(problem, f"ld{name.lower()}") for name, count in rows.items()
        }
        given: dict[str, int | float] = {**extents(problem), **factors(problem)}
        for rule in rules.values():
            if rule.extent is None:
                given[rule.name] = rule.neutral
            else:
                text = self._text(rule.extent)
                elements[rule.name] = int(text) if text.isdigit() else text
        for argument in gemm_signature([rule.argument for rule in rules.values()]):
            element = argument.element(problem.dtype)
            if not argument.is_array:
                yield {
                    "Name": argument.name,
                    "Type": "int32" if element is None else "float",
                    "MemoryType": "Scalar",
                    "AccessType": "ReadOnly",
                    "FillValue": given[argument.name],
                }
                continue
            assert element is not None, "an array"
            own = rules.get(argument.name)
            yield {
                "Name": argument.name,
                "Type": element.t1_type,
                "MemoryType": "Vector",
                "AccessType": "ReadOnly" if argument.is_const else "ReadWrite",
                "Size": elements[argument.name],
                "TypeSize": element.size_bytes,
                "FillType": "Constant" if own else "Random",
                **({"FillValue": own.neutral} if own else {}),
            }

    def left_out(self) -> Iterator[str]:
        """A line for each thing that T1 has no words for."""
        family, problem = self._space.family, self._space.problem
        yield (
            f"sizes and limits are put in place: the file is for {problem.label} on "
            f"{self._space.device.name}"
        )
        yield (
            f"KernelFile: the source depends on the config; autogemm render --family {family.name} "
            "writes that of one"
        )
        if family.derive:
            yield f"{len(family.derive)} derived quantities: put in place"
        yield "what parameters mean, and why constraints are there"
        if len(family.seeds) > 1:
            yield f"{len(family.seeds) - 1} of {len(family.seeds)} seeds: there is one default"
        if len(family.launch) > 1:
            yield f"{len(family.launch) - 1} of {len(family.launch)} launches"
        if any(launch.smem_bytes.text != "0" for launch in family.launch):
            yield "dynamic shared memory: it depends on the config, and T1 takes one number"
        if family.workspace_bytes.text != "0":
            yield "the workspace"
        if family.tensor_maps:
            yield f"{len(family.tensor_maps)} tensor maps: their rules are among the constraints"


def _parsed(text: str, rule: Constraint) -> Expression:
    return parse_expression(text, str(rule), MAX_CHARS)


def _plain_to_others(text: str) -> str:
    """Kernel Tuner 1.5 takes a comparison without `and` and `or` apart with patterns that know
    neither // nor min, max, minus and choices, and mistakes these.
    """
    is_junction = " and " in text or " or " in text
    return text if is_junction or not _MISTAKEN.search(text) else f"{text} and True"


def yaml_text(space: T1Space) -> str:
    """A T1 space as a family's YAML, to be completed: with a launch and, beside it, a template."""
    family = space.family
    content = {
        "family": family.name,
        "summary": family.summary,
        "dtypes": dict.fromkeys(("a", "b", "c", "accumulate"), str(DType.F32)),
        "architectures": ">=70",
        "parameters": {
            one.name: {"values": list(one.values), "doc": "?"} for one in family.parameters
        },
        "constraints": [
            {"require": rule.require.text, "because": rule.because} for rule in family.constraints
        ],
        "seeds": [seed.as_dict() for seed in family.seeds],
    }
    body = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=10_000)
    head = [
        "From a T1 file. What it does not hold is to be written here: `launch` (kernel, threads,",
        f"grid), what the parameters mean, and the template {family.name}.cu.jinja.",
        *(f"Left out: {line}" for line in space.left_out),
    ]
    return "".join(f"# {line}\n" for line in head) + body
