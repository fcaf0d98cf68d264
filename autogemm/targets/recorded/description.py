"""Descriptions of kernels that others recorded: what their parameters mean, and what follows.

A description is a YAML file in ``search_spaces/foreign``: no template and no constraints, because
such a kernel is replayed and never made. It gives the search what a family's ``derive`` gives it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autogemm.model.config import Value
from autogemm.space import (
    PROBLEM_NAMES,
    Expression,
    ExpressionText,
    Identifier,
    Text,
    list_families,
    load_family,
    load_yaml,
    parse_expression,
)
from autogemm.support.errors import FamilyError
from autogemm.support.resources import data_folder

SIZES = ("M", "N", "K")


@dataclass(frozen=True, slots=True)
class Description:
    """A kernel known by its parameters. ``derive`` is ordered: each reads earlier ones only.

    ``problem_size`` names what the numbers of a cache file's problem size count: of M, N and K.
    """

    name: str
    problem_size: tuple[str, ...]
    required: frozenset[str]
    docs: Mapping[str, str]
    derive: Mapping[str, Expression]
    defaults: Mapping[str, Value] = field(default_factory=dict)
    """Values of parameters that came later than some recordings."""


class _Form(BaseModel):
    """A whole file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kernel: Identifier
    summary: Text
    problem_size: Annotated[list[str], Field(max_length=len(SIZES))]
    required: Annotated[list[Identifier], Field(min_length=1)]
    parameters: Annotated[dict[Identifier, Text], Field(min_length=1, max_length=64)]
    derive: Annotated[dict[Identifier, ExpressionText], Field(max_length=500)] = {}


def description_for(parameters: Sequence[str], kernel_name: str) -> Description | None:
    """The description of the kernel with these parameters, None if none is known.

    A kernel fits if what it requires is among them, of a family that ships all its parameters; of
    several the one of that name, else the one that requires most. Raises FamilyError for a broken
    description.
    """
    names = frozenset(parameters)
    fitting = [one for one in _known() if one.required <= names]
    return max(fitting, key=lambda one: (one.name == kernel_name, len(one.required)), default=None)


def _known() -> Iterator[Description]:
    for path in sorted((data_folder("search_spaces") / "foreign").glob("*.yaml")):
        yield read_description(path)
    for name in list_families():
        family = load_family(name)
        docs = {parameter.name: parameter.doc for parameter in family.parameters}
        defaults = {p.name: p.default for p in family.parameters if p.default is not None}
        required = frozenset(docs.keys() - defaults.keys())
        yield Description(family.name, SIZES, required, docs, family.derive, defaults)


def read_description(path: Path) -> Description:
    """The description in a file. Raises FamilyError naming the file and what is wrong in it."""
    try:
        form = _Form.model_validate(load_yaml(path.read_bytes()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise FamilyError(f"{path}: {' '.join(str(error).split())}") from error
    known = {*PROBLEM_NAMES, *form.parameters}
    derive = {}
    for name, text in form.derive.items():
        derive[name] = parse_expression(text, f"{path}: derive.{name}")
        if unknown := sorted(derive[name].names - known):
            raise derive[name].error(f"{unknown[0]!r} is neither a parameter nor derived before")
        known.add(name)
    if odd := sorted({*form.problem_size} - {*SIZES} | {*form.required} - {*form.parameters}):
        raise FamilyError(f"{path}: {odd[0]!r} is not among the names that can stand there")
    return Description(
        name=form.kernel,
        problem_size=tuple(form.problem_size),
        required=frozenset(form.required),
        docs=form.parameters,
        derive=derive,
    )
