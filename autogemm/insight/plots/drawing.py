"""Files and looks of all pictures; the looks need no colour."""

import io
import textwrap
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from autogemm.support.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Given = ParamSpec("Given")

FORMATS = (".png", ".svg", ".pdf")
# Told apart by line and marker, not by colour: greys only repeat after six curves.
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))
MARKERS = "osD^vPX*<>hd"
GREYS = ("0.0", "0.35", "0.55")
GRID: dict[str, Any] = {"color": "0.85", "linewidth": 0.6}
MEDIUM = (8.0, 5.0)
LETTERS_PER_INCH = 12

_STYLE: dict[Any, Any] = {
    # Names from files and databases are text, never formulas.
    "text.parse_math": False,
    # The same picture gives the same file.
    "svg.hashsalt": "autogemm",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
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
        raise UsageError("plots need matplotlib: pip install 'autogemm[plot]'") from error


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
        with mpl.rc_context(_STYLE), warnings.catch_warnings():
            # A letter that the font lacks becomes a box.
            warnings.filterwarnings("ignore", message="Glyph")
            figure = Figure(figsize=MEDIUM, layout="constrained")
            draw(figure, *args, **kwargs)
            buffer = io.BytesIO()
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
            figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
        return buffer.getvalue()

    return drawn


def titled(figure: "Figure", title: str, caption: str) -> None:
    """A title, and below it what the picture is of."""
    width = int(figure.get_figwidth() * LETTERS_PER_INCH)
    lines = [line for text in (title, caption) for line in textwrap.wrap(text, width)]
    figure.suptitle("\n".join(lines), x=0.012, ha="left", fontsize="medium")
