"""A family's YAML: parameters, constraints, and the legal configs as NumPy columns."""

from autogemm.space.build import build_space, listed_space
from autogemm.space.checking import RESERVED
from autogemm.space.derived import (
    DEFAULT_TILE,
    Tile,
    broken_constraints,
    broken_rules,
    derive_values,
    derived_columns,
    expected_time,
    is_legal,
    launch_plan,
    matrix_of,
    stages_of,
    tile_of,
)
from autogemm.space.expressions.expression import Expression
from autogemm.space.expressions.parsing import parse_expression
from autogemm.space.family import (
    EXPECTED_TIME,
    MAX_VALUE,
    PROBLEM_NAMES,
    Constraint,
    Family,
    LaunchRule,
    Parameter,
    Searched,
    TensorMapRule,
    device_values,
    problem_values,
)
from autogemm.space.held import HeldValues, signature_of, written
from autogemm.space.inputs import PREFIX as EPILOGUE_PREFIX
from autogemm.space.inputs import arguments_of, epilogue_rules, output_rules
from autogemm.space.legal import Space
from autogemm.space.loading import default_families, list_families, load_family, seeds_path
from autogemm.space.narrowing import parse_fix
from autogemm.space.nearest import fitted, nearest_legal, same_tiles
from autogemm.space.outside import check_outside
from autogemm.space.schema import (
    IDENTIFIER,
    MAX_VALUES,
    ExpressionText,
    Identifier,
    Text,
)
from autogemm.space.starter import starter_pair
from autogemm.space.tensor_maps import ALIGNMENT_BYTES
from autogemm.space.yaml_data import load_yaml

__all__ = [
    "ALIGNMENT_BYTES",
    "DEFAULT_TILE",
    "EPILOGUE_PREFIX",
    "EXPECTED_TIME",
    "IDENTIFIER",
    "MAX_VALUE",
    "MAX_VALUES",
    "PROBLEM_NAMES",
    "RESERVED",
    "Constraint",
    "Expression",
    "ExpressionText",
    "Family",
    "HeldValues",
    "Identifier",
    "LaunchRule",
    "Parameter",
    "Searched",
    "Space",
    "TensorMapRule",
    "Text",
    "Tile",
    "arguments_of",
    "broken_constraints",
    "broken_rules",
    "build_space",
    "check_outside",
    "default_families",
    "derive_values",
    "derived_columns",
    "device_values",
    "epilogue_rules",
    "expected_time",
    "fitted",
    "is_legal",
    "launch_plan",
    "list_families",
    "listed_space",
    "load_family",
    "load_yaml",
    "matrix_of",
    "nearest_legal",
    "output_rules",
    "parse_expression",
    "parse_fix",
    "problem_values",
    "same_tiles",
    "seeds_path",
    "signature_of",
    "stages_of",
    "starter_pair",
    "tile_of",
    "written",
]
