"""The one Jinja environment. Templates read like the kernel; Jinja only chooses code."""

import re
import traceback
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from jinja2 import (
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    Undefined,
)
from jinja2.meta import find_referenced_templates
from jinja2.sandbox import ImmutableSandboxedEnvironment

from autogemm.support.bounded_jinja import BoundedEnvironment
from autogemm.support.errors import FamilyError
from autogemm.support.messages import message
from autogemm.support.resources import data_folder

# Before version 0.2 parts were included, and read whatever stood around them.
PARTS_HINT = "parts are macros in parts/ROLE/NAME.cu.jinja: import one and pass its arguments"
# The longest that ships has 17,000.
MAX_TEMPLATE_CHARS = 2**20
# Errors that a wrong template raises: Jinja's own, and Python's from its expressions.
_OF_A_TEMPLATE = (
    *(TemplateError, SyntaxError, TypeError, ValueError, ArithmeticError, LookupError),
    *(RecursionError, MemoryError),
)

# Comments, and tags that name another template; one that does not end reaches to the end.
_COMMENT = re.compile(r"\{#.*?(?:#\}|\Z)", re.DOTALL)
_REFERENCE = re.compile(r"\{%[-+]?\s*(?:import|from|include|extends)\b.*?(?:%\}|\Z)", re.DOTALL)
# Text that is not what it looks like: in a block of raw text, or quoted.
_QUOTED = re.compile(r"""\braw\b|['"][^'"\n]*\{[#%]""")

# Columns of the emitted text (.clang-format).
WIDTH = 100


@cache
def environment(family_folder: Path | None = None) -> ImmutableSandboxedEnvironment:
    """The environment over the shipped templates, and before them a family's own folder.

    Sandboxed, because a family may come from elsewhere, and bounded where it does. A name that is
    not in the context raises, and so does anything but text and integers between ``{{`` and ``}}``.
    """
    shipped = data_folder("templates")
    is_ours = family_folder in (None, shipped)
    folders = [shipped] if is_ours else [family_folder, shipped]
    kind = ImmutableSandboxedEnvironment if is_ours else BoundedEnvironment
    made = kind(
        loader=FileSystemLoader([str(folder) for folder in folders]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        finalize=_only_text_and_integers,
    )
    if isinstance(made, BoundedEnvironment):
        made.finalize = _counted(made)
    made.filters["filled"] = filled
    return made


def texts_of(template: Path) -> dict[str, str]:
    """A family's template and all that it includes or imports, directly or not: text by name.

    A template that cannot be parsed includes nothing, and one that is missing has no text: what is
    wrong there is said when it is rendered. Raises FamilyError where a name is computed while
    rendering, and for what cannot be read.
    """
    made = environment(template.parent)
    assert made.loader is not None
    found: dict[str, str] = {}
    waiting = [template.name]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = made.loader.get_source(made, name)[0]
        except TemplateNotFound:
            found[name] = ""
        except OSError as error:
            raise FamilyError(f"{error.filename}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise FamilyError(f"template {name} of {template}: no text: {error}") from None
        if len(found[name]) > MAX_TEMPLATE_CHARS:
            raise FamilyError(
                f"template {name} of {template}: it has more than {MAX_TEMPLATE_CHARS} characters"
            )
        for inner in _referenced(found[name]):
            if inner is None:
                raise FamilyError(
                    f"template {name} of {template}: it includes or imports one whose name is "
                    "computed; write the name out"
                )
            waiting.append(inner)
    return found


# The same parts are read for each family, and each family is loaded again and again.
@lru_cache(maxsize=512)
def _referenced(text: str) -> tuple[str | None, ...]:
    """Names of the templates that a text includes or imports; None for one that is computed."""
    if not _QUOTED.search(text):
        # Parsing all of it takes ten times as long, at the start of every process.
        text = "".join(_REFERENCE.findall(_COMMENT.sub("", text)))
    try:
        return tuple(find_referenced_templates(environment().parse(text)))
    except (TemplateSyntaxError, RecursionError, ValueError):
        return ()


def rendered(template: Path, context: Mapping[str, object]) -> str:
    """The text of a family's template. Raises FamilyError, naming the template and the line."""
    made = environment(template.parent)
    if isinstance(made, BoundedEnvironment):
        made.begin()
    try:
        return made.get_template(template.name).render(context)
    except _OF_A_TEMPLATE as error:
        line = getattr(error, "lineno", None) or _line(error, template)
        place = f"{template}:{line}" if line else str(template)
        hint = ""
        if isinstance(error, TemplateNotFound) and str(error.name).startswith("parts/"):
            hint = f"; {PARTS_HINT}"
        what = message(str(error) or type(error).__name__)
        raise FamilyError(f"template {place}: {what}{hint}") from error


def _line(error: BaseException, template: Path) -> int | None:
    """The template's line at which an error that knows none was raised."""
    frames = traceback.extract_tb(error.__traceback__, limit=200)
    lines = [frame.lineno for frame in frames if frame.filename == str(template)]
    return lines[-1] if lines else None


def _counted(made: BoundedEnvironment) -> Callable[[object], object]:
    def finalize(value: object) -> object:
        printed = _only_text_and_integers(value)
        if isinstance(printed, str):
            made.count_chars(len(printed))
        return printed

    return finalize


def filled(line: str, inset: int = 0) -> str:
    """A line too long for the emitted text, broken behind commas and aligned behind its first
    round or curly bracket, or as it begins where it has none: signatures and calls whose words have
    lengths of their own. A comment is broken between words. ``inset`` are columns by which it will
    stand further in.
    """
    line = line.rstrip("\n")
    is_comment = line.lstrip().startswith("//")
    if is_comment:
        indent = line[: line.index("// ") + 3]
    else:
        open_at = [line.index(bracket) + 1 for bracket in "({" if bracket in line]
        indent = " " * min(open_at, default=len(line) - len(line.lstrip()))
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
