"""A family to start from: a small search space and its template, under a name of one's own."""

import re

import yaml

from autogemm.space.schema import IDENTIFIER
from autogemm.support.errors import UsageError
from autogemm.support.resources import data_folder

STARTER = "starter"


def starter_pair(name: str) -> dict[str, str]:
    """Return the files of a new family, text by file name: ``NAME.yaml`` and ``NAME.cu.jinja``.

    Raises UsageError for a name that no family may have.
    """
    # `no` and `null` are words of YAML, which reads them as something else.
    if not re.fullmatch(IDENTIFIER, name) or len(name) > 60 or yaml.safe_load(name) != name:
        raise UsageError(
            "the name of a family has at most 60 letters, digits and _, does not begin with a "
            f"digit and is not a reserved word of YAML, got {name!r}"
        )
    folder = data_folder("search_spaces") / STARTER
    space = (folder / f"{STARTER}.yaml").read_text()
    template = (folder / f"{STARTER}.cu.jinja").read_text()
    space = space.replace(f"family: {STARTER}\n", f"family: {name}\n", 1)
    return {f"{name}.yaml": space, f"{name}.cu.jinja": template}
