"""What a report is made with, or one line that says what to install."""

from importlib.util import find_spec

from markupsafe import Markup

from autogemm.support.errors import UsageError

PACKAGES = ("plotly", "pygments")


def require_packages() -> None:
    """Raises UsageError where a package of the extra is missing: before anything is computed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(f"reports need {' and '.join(missing)}: pip install 'autogemm[report]'")


def plotly_source() -> str:
    """The JavaScript of Plotly, whole: a report loads nothing."""
    require_packages()
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    assert isinstance(source, str)
    # The one sequence that would end the script element early.
    return source.replace("</script", "<\\/script")


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
