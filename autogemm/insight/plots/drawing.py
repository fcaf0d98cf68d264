"""Files and looks of all pictures: colours of one palette, on a light or a dark ground."""

import io
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from autogemm.catalogue.palette import LIGHT, THEMES, Palette
from autogemm.support.errors import UsageError
from autogemm.support.installing import how_to_install

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Given = ParamSpec("Given")

FORMATS = (".png", ".svg", ".pdf")
# Lines of one colour are told apart by their dashes.
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = "osD^vPX*<>hd"
# Inches: the width between the margins of A4 and of US Letter, and the height.
PAPER_WIDTH, PAPER_HEIGHT = 7.2, 9.8
MEDIUM = (PAPER_WIDTH, 4.5)
LETTERS_PER_INCH = 12
# The shape of each role of the palette: with none of the colours it is still told apart.
ROLE_MARKERS = {"own": "o", "baseline": "s", "library": "^", "other": "D"}
ROLE_WORDS = {
    "own": "kernel of your own",
    "baseline": "the baseline",
    "library": "another library",
    "other": "rung of the ladder",
}

_theme = ContextVar("theme", default=LIGHT)


def colours() -> Palette:
    """The colours of the picture that is being drawn."""
    return _theme.get()


@contextmanager
def theme(name: str) -> Iterator[None]:
    """Draw pictures meanwhile for a ``light`` or a ``dark`` ground."""
    token = _theme.set(THEMES[name])
    try:
        yield
    finally:
        _theme.reset(token)


def _style() -> dict[Any, Any]:
    palette = colours()
    return {
        # Names from files and databases are text, never formulas.
        "text.parse_math": False,
        # The same picture gives the same file.
        "svg.hashsalt": "autogemm",
        "font.size": 9.0,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": palette.line,
        "grid.linewidth": 0.6,
        **dict.fromkeys(
            ("figure.facecolor", "axes.facecolor", "savefig.facecolor"), palette.ground
        ),
        **dict.fromkeys(("text.color", "axes.labelcolor"), palette.ink),
        **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), palette.ink),
        **dict.fromkeys(("xtick.color", "ytick.color", "axes.edgecolor"), palette.faint),
        "legend.frameon": False,
    }


def check_plot(path: Path) -> None:
    """Raise UsageError if no picture can be written there: before the work that it would show."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"a plot is one of {' '.join(FORMATS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}: make it first")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(f"plots need matplotlib: {how_to_install('plot')}") from error


def picture(
    draw: Callable[Concatenate["Figure", Given], None],
) -> Callable[Concatenate[str, Given], bytes]:
    """Make a function that fills a figure into one that returns the content of a file.

    It takes the file's suffix, .png, .svg or .pdf, in place of the figure.
    """

    @wraps(draw)
    def drawn(suffix: str, /, *args: Given.args, **kwargs: Given.kwargs) -> bytes:
        import matplotlib as mpl
        from matplotlib.figure import Figure

        kind = suffix.lower().removeprefix(".")
        with mpl.rc_context(_style()), warnings.catch_warnings():
            # A letter that the font lacks becomes a box.
            warnings.filterwarnings("ignore", message="Glyph")
            figure = Figure(figsize=MEDIUM, layout="constrained")
            draw(figure, *args, **kwargs)
            buffer = io.BytesIO()
            alt = figure.get_suptitle().replace("\n", ". ")
            metadata = {"Title": alt} | {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(
                kind, {}
            )
            figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
        return buffer.getvalue()

    return drawn


def titled(figure: "Figure", title: str, caption: str) -> None:
    """A title, and below it what the picture is of; a file has both as its alternative text."""
    width = int(figure.get_figwidth() * LETTERS_PER_INCH)
    lines = [line for text in (title, caption) for line in textwrap.wrap(text, width)]
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize="medium")


def plain_numbers(*axes: "Axis") -> None:
    """1, 10, 1000 rather than powers of ten."""
    for axis in axes:
        axis.set_major_formatter(lambda value, place: f"{value:,.10g}")
        axis.set_minor_formatter(lambda value, place: "")


def role_legend(figure: "Figure", roles: Iterable[str]) -> None:
    """Name the roles that are there, below the picture."""
    from matplotlib.lines import Line2D

    known = set(roles)
    there = [role for role in ROLE_WORDS if role in known]
    handles = [
        Line2D(
            [],
            [],
            label=ROLE_WORDS[role],
            color=getattr(colours(), role),
            marker=ROLE_MARKERS[role],
            linestyle="",
        )
        for role in there
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(there), fontsize="small")
