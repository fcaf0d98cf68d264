"""A report as values, and the one HTML file that they become."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from autogemm.catalogue.palette import THEMES
from autogemm.model.config import Value
from autogemm.model.results.outcome import Provenance
from autogemm.support.cells import shown
from autogemm.support.errors import UsageError
from autogemm.support.installing import how_to_install
from autogemm.support.version import __version__

# With what every report begins, so that a later one may replace it.
BEGINNING = "<!DOCTYPE html>\n<!-- autogemm report -->"


@dataclass(frozen=True, slots=True)
class Column:
    """A column's name; ``kind`` is ``number`` (to the right) or ``text``."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption; all rows are as long as ``columns``."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plot:
    """A place for a plot: ``name`` is the function of report.js that draws it."""

    name: str
    title: str
    about: str


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page. ``code`` is HTML that is safe already; all else is escaped.

    ``lists`` have a heading and points.
    """

    name: str
    heading: str
    paragraphs: tuple[str, ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    has_filter: bool = False
    code: Markup | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report. ``data`` is what its plots draw, ``provenance`` that of its times."""

    title: str
    subtitle: str
    provenance: Provenance
    sections: tuple[Section, ...]
    data: dict[str, Any]
    made_at: datetime = field(default_factory=lambda: datetime.now(UTC))


def table(
    caption: str,
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Table:
    """Rows of values as a table, of these columns or of those of the first row."""
    names = tuple(columns or (rows[0] if rows else ()))
    cells = tuple(tuple(_cell(row.get(name)) for name in names) for row in rows)
    heads = tuple(Column(name, _kind([row.get(name) for row in rows])) for name in names)
    return Table(caption, heads, cells, tuple(notes))


def terms(values: Iterable[tuple[str, Value]], meanings: Mapping[str, str]) -> Markup:
    """Values of parameters, each name with its meaning behind it where that is known."""
    written = [
        Markup('<button type="button" class="term" title="{}">{}</button>={}').format(
            meanings[name], name, value
        )
        if name in meanings
        else escape(f"{name}={value}")
        for name, value in values
    ]
    return Markup(" ").join(written)


def filled(*tables: Table) -> tuple[Table, ...]:
    """Return those of the tables that have rows."""
    return tuple(one for one in tables if one.rows)


def render_page(page: Page) -> bytes:
    """The page as one HTML file that needs nothing else. Raises UsageError without Pygments."""
    folder = files("autogemm.insight.report")
    text = (
        _environment()
        .get_template("page.html.jinja")
        .render(
            page=page,
            version=__version__,
            style=Markup(folder.joinpath("report.css").read_text(encoding="utf-8")),
            script=Markup(folder.joinpath("report.js").read_text(encoding="utf-8")),
            styles={"light": highlight_styles("default"), "dark": highlight_styles("github-dark")},
            palettes=THEMES,
            libraries=libraries(),
            data=Markup(_json(page.data)),
        )
    )
    return text.encode("utf-8", "replace")


def _cell(value: object) -> str:
    return value if isinstance(value, Markup) and value else shown(value)


def _kind(values: Sequence[object]) -> str:
    known = [value for value in values if value is not None]
    return "number" if known and all(map(_is_number, known)) else "text"


def _is_number(value: object) -> bool:
    """Return whether a value is a number, or the text of one."""
    if isinstance(value, str):
        return value.replace(".", "", 1).isdigit()
    return isinstance(value, int | float)


def _json(data: dict[str, Any]) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _environment() -> Environment:
    """HTML, so that everything is escaped but what is Markup."""
    return Environment(
        loader=PackageLoader("autogemm.insight.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def require_packages() -> None:
    """Raise UsageError where the package of the extra is missing: before anything is computed."""
    if find_spec("pygments") is None:
        raise UsageError(f"reports need pygments: {how_to_install('report')}")


@dataclass(frozen=True, slots=True)
class Library:
    """JavaScript of others, whole, with its licence as an HTML comment may hold it."""

    name: str
    source: Markup
    licence: Markup


@cache
def libraries() -> tuple[Library, ...]:
    """The libraries that draw, in the order in which they start; vendor/README.md has more."""
    folder = files("autogemm.insight.report").joinpath("vendor")
    found = []
    for name, file in (("d3", "d3.min.js"), ("plot", "plot.umd.min.js")):
        source = folder.joinpath(file).read_text(encoding="utf-8")
        licence = folder.joinpath(f"{name}.LICENSE").read_text(encoding="utf-8")
        found.append(Library(name, Markup(source), Markup(licence)))
    return tuple(found)


def highlighted(source: str) -> Markup:
    """CUDA as HTML, with the classes that `highlight_styles` colours."""
    require_packages()
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import CudaLexer

    return Markup(highlight(source, CudaLexer(), HtmlFormatter(nowrap=True)))


def highlight_styles(name: str) -> Markup:
    """The colours of a Pygments style, for elements in ``.source``."""
    from pygments.formatters import HtmlFormatter

    return Markup(HtmlFormatter(style=name).get_style_defs(".source"))
