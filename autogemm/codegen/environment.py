"""The one Jinja environment. Templates read like the kernel; Jinja only chooses code."""

import re
from functools import cache
from pathlib import Path

from jinja2 import FileSystemLoader, StrictUndefined, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from autogemm.support.resources import data_folder

# Columns of the emitted text (.clang-format).
WIDTH = 100


@cache
def environment(family_folder: Path | None = None) -> ImmutableSandboxedEnvironment:
    """The environment over the shipped templates, and before them a family's own folder.

    Sandboxed, because a family may come from somebody else. A name that is not in the context
    raises, and so does anything but text and integers between ``{{`` and ``}}``.
    """
    shipped = data_folder("templates")
    folders = [shipped] if family_folder in (None, shipped) else [family_folder, shipped]
    made = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader([str(folder) for folder in folders]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_only_text_and_integers,
    )
    made.filters["filled"] = filled
    return made


def filled(line: str, inset: int = 0) -> str:
    """A line too long for the emitted text, broken behind commas and aligned behind its first
    bracket: signatures and calls whose words have lengths of their own. A comment is broken between
    words. ``inset`` are columns by which it will stand further in.
    """
    line = line.rstrip("\n")
    is_comment = line.lstrip().startswith("//")
    indent = line[: line.index("// ") + 3] if is_comment else " " * (line.index("(") + 1)
    lines = [""]
    for part in re.findall(r"\s*\S+" if is_comment else r"[^,]*,?", line):
        if len((lines[-1] + part).rstrip()) > WIDTH - inset:
            lines.append(indent + part.lstrip())
        else:
            lines[-1] += part
    return "\n".join(text.rstrip() for text in lines) + "\n"


def _only_text_and_integers(value: object) -> object:
    """``8 / 2`` would print 4.0 and a missing value None: both are bugs of a template."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | Undefined):
        return value
    raise TypeError(f"a template printed {value!r}; only text and integers may be printed")
