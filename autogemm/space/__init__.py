"""A family's YAML: parameters, constraints, and the legal configs as NumPy columns."""

from autogemm.space.build import build_space
from autogemm.space.derived import broken_constraints, derive_values, launch_plan
from autogemm.space.expressions.expression import Expression
from autogemm.space.expressions.parsing import parse_expression
from autogemm.space.family import (
    Constraint,
    Family,
    LaunchRule,
    Parameter,
    Searched,
    specialised_values,
)
from autogemm.space.legal import Space
from autogemm.space.listed import listed_space
from autogemm.space.loading import default_families, list_families, load_family
from autogemm.space.narrowing import parse_fix
from autogemm.space.nearest import fitted, snapped
from autogemm.space.tiles import Tile, stages_of, tile_of

__all__ = [
    "Constraint",
    "Expression",
    "Family",
    "LaunchRule",
    "Parameter",
    "Searched",
    "Space",
    "Tile",
    "broken_constraints",
    "build_space",
    "default_families",
    "derive_values",
    "fitted",
    "launch_plan",
    "list_families",
    "listed_space",
    "load_family",
    "parse_expression",
    "parse_fix",
    "snapped",
    "specialised_values",
    "stages_of",
    "tile_of",
]
