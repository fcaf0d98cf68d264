"""T1, the search space format of the auto-tuning community: a foreign space read as a family.

A T1 file is JSON: parameters with their values as a text in Python, conditions on them in Python,
and the kernel that they are of. Nothing of it is run: values and conditions are taken as far as the
project's own small language says the same, and what it cannot say is listed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from autogemm.formats.lines import ForeignForm, fault, named_faults
from autogemm.formats.open_json import check_nesting
from autogemm.formats.t1_conditions import own_condition
from autogemm.formats.t1_values import values_of
from autogemm.model.config import Config, Value
from autogemm.space import IDENTIFIER, RESERVED, Constraint, Family, Parameter, parse_expression
from autogemm.support.cells import one_line
from autogemm.support.errors import ExchangeError, FamilyError
from autogemm.support.files import decoded, unpacked

MAX_FILE_BYTES = 2**20
MAX_PARAMETERS = 64
MAX_CONDITIONS = 500

BECAUSE = "a condition of the T1 file"

# Longer texts are cut in messages, longer names are none.
_SHOWN = 60
_MARK = b'"ConfigurationSpace"'
_NAME = re.compile(IDENTIFIER)


# Fields that the forms below do not name are looked at only to say that they are left out.


class _Parameter(ForeignForm):
    Name: Annotated[str, Field(min_length=1, max_length=200)]
    Type: Literal["int", "uint", "float", "bool", "string"]
    Values: str | list[Any]
    Default: Any = None


class _Condition(ForeignForm):
    Expression: str


class _Space(ForeignForm):
    TuningParameters: Annotated[list[_Parameter], Field(min_length=1, max_length=MAX_PARAMETERS)]
    Conditions: list[_Condition] = Field([], max_length=MAX_CONDITIONS)


class _Kernel(ForeignForm):
    KernelName: Annotated[str, Field(min_length=1, max_length=_SHOWN)] = "kernel"


class _File(ForeignForm):
    ConfigurationSpace: _Space
    KernelSpecification: _Kernel = _Kernel()


# These have a place elsewhere: the reason by where each stands in a T1 file.
_ELSEWHERE = {
    "Search": "how a space is searched is said with tune --sampler",
    "Budget": "how long is said with tune --trials and --budget",
    "General": "units and output are fixed here",
    "KernelSpecification.KernelFile": "the kernel is not taken: a family has a template",
    "KernelSpecification.CompilerOptions": "all kernels are compiled with the same options",
    "KernelSpecification.Arguments": "all kernels have one signature, that of a GEMM",
    "KernelSpecification.ReferenceArguments": "results are compared with a float64 reference",
    "KernelSpecification.ProblemSize": "the problem is given with --size",
    "KernelSpecification.Device": "the GPU is given with --gpu",
    "KernelSpecification.GlobalSize": "the grid is written in a family's launch",
    "KernelSpecification.LocalSize": "the block is written in a family's launch",
    "KernelSpecification.GlobalSizeType": "the grid is counted in blocks",
    "KernelSpecification.SharedMemory": "shared memory is written in a family's launch",
    "KernelSpecification.Language": "kernels are written in CUDA",
}
_TAKEN = {"ConfigurationSpace", "KernelSpecification.KernelName"}
# Where it says what is so here anyway.
_AS_HERE = {"KernelSpecification.Language": "CUDA", "KernelSpecification.GlobalSizeType": "CUDA"}


@dataclass(frozen=True, slots=True)
class T1Space:
    """A family without template, launch and derived quantities, and what it lacks of the file, a
    line each.
    """

    family: Family
    left_out: tuple[str, ...]


def is_t1(path: Path) -> bool:
    """Whether the file looks like a T1 space; False for one that cannot be read."""
    try:
        return _MARK in next(unpacked(path, MAX_FILE_BYTES), b"")
    except (OSError, ValueError):
        return False


def read_t1(path: Path) -> T1Space:
    """The space in a file, gzip'd or not. Raises ExchangeError for a broken one, and for one of
    which nothing can be said here.
    """
    with named_faults("T1 file", path, ExchangeError):
        text = "".join(decoded(unpacked(path, MAX_FILE_BYTES)))
        check_nesting(text, 0, len(text))
        content = json.loads(text)
        form = _File.model_validate(content)
    reading = _Reading(form.ConfigurationSpace)
    if not reading.parameters:
        why = "; ".join(reading.left_out[:3])
        raise ExchangeError(f"the T1 file {path} has no usable parameter: {why}")
    said = form.KernelSpecification.KernelName
    name = re.sub(r"\W+", "_", said, flags=re.ASCII)
    name = name if _NAME.match(name) else f"kernel_{name}"
    family = Family(
        name=name,
        summary=f"the space of {one_line(said)} in {one_line(path.name)}",
        dtypes={},
        architectures="",
        parameters=tuple(reading.parameters.values()),
        derive={},
        constraints=tuple(reading.constraints),
        worth_trying=(),
        launch=(),
        workspace_bytes=parse_expression("0"),
        fp32_every=parse_expression("0"),
        seeds=reading.seeds(name),
        yaml_path=path,
        template_path=None,
        yaml_sha256="",
        template_sha256="",
    )
    return T1Space(family, (*reading.left_out, *_elsewhere(content)))


class _Reading:
    """A space on its way in."""

    def __init__(self, form: _Space) -> None:
        self.left_out: list[str] = []
        self.parameters: dict[str, Parameter] = {}
        self.constraints: list[Constraint] = []
        self._form = form
        for parameter in form.TuningParameters:
            self._take_parameter(parameter)
        for condition in form.Conditions:
            self._take_condition(condition.Expression)

    def _take_parameter(self, form: _Parameter) -> None:
        name = form.Name
        try:
            if not (_NAME.match(name) and len(name) <= _SHOWN) or name in RESERVED:
                raise ValueError("the name means something else here, or is not a name")
            if name in self.parameters:
                raise ValueError("there are two of that name")
            values = values_of(form.Values)
        except ValueError as error:
            self.left_out.append(f"parameter {_quoted(name)}: {fault(error)}")
            return
        if isinstance(values[0], str) and form.Type == "float":
            self.left_out.append(
                f"parameter {_quoted(name)}: its values are kept as words, nothing computes with "
                "them"
            )
        self.parameters[name] = Parameter(name, values, "")

    def _take_condition(self, text: str) -> None:
        try:
            rule = own_condition(text, self.parameters)
        except FamilyError as error:
            self.left_out.append(f"condition {_quoted(text)}: {fault(error)}")
            return
        self.constraints.append(Constraint(rule, BECAUSE))

    def seeds(self, family: str) -> tuple[Config, ...]:
        """One, of the defaults, if every parameter has one that is among its values."""
        values: dict[str, Value] = {}
        for form in self._form.TuningParameters:
            parameter = self.parameters.get(form.Name)
            default = _default(form)
            if parameter is None or default not in parameter.values:
                return ()
            values[form.Name] = default
        return (Config.of(family, values),)


def _default(form: _Parameter) -> Value | None:
    """The default as values are read; some files write a list of one."""
    try:
        (value,) = values_of(form.Default if isinstance(form.Default, list) else [form.Default])
    except ValueError:
        return None
    return value


def _elsewhere(content: Mapping[str, Any]) -> Iterator[str]:
    """A line for each thing in the file that has no place in a family."""
    kernel = content.get("KernelSpecification")
    fields = {name: value for name, value in content.items() if name != "KernelSpecification"}
    if isinstance(kernel, dict):
        fields |= {f"KernelSpecification.{name}": value for name, value in kernel.items()}
    for name, value in fields.items():
        if name in _TAKEN or value in (None, "", [], {}, _AS_HERE.get(name)):
            continue
        why = _ELSEWHERE.get(name, "has no counterpart here")
        yield f"{_quoted(name)[1:-1]}: {why}"


def _quoted(text: str) -> str:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return repr(shown)
