"""The colours of all pictures and reports, for a light and a dark background.

Marks have a contrast of at least 3:1 with the background and text of at least 4.5:1 (WCAG 2.2,
1.4.3 and 1.4.11), and the roles stay apart for each kind of colour blindness; tests compute both.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours as ``#rrggbb``. The last five are the roles of kernels and lines in pictures."""

    ground: str
    raised: str
    """The ground of code and controls."""
    ink: str
    faint: str
    """Text that matters less."""
    line: str
    """Grids and borders, which carry no information."""
    accent: str
    warn_ground: str
    warn_ink: str
    own: str
    """Winners and kernels of the user's own."""
    baseline: str
    library: str
    """Libraries other than the baseline."""
    marked: str
    other: str
    """Entries to compare with: rungs of the ladder, all trials."""

    @property
    def css(self) -> str:
        """Declarations of custom properties."""
        return " ".join(f"--{name.replace('_', '-')}: {hue};" for name, hue in asdict(self).items())

    def roles(self) -> Iterator[str]:
        """The colours of marks, which must be told apart."""
        yield from (getattr(self, field.name) for field in fields(self)[-5:])


LIGHT = Palette(
    ground="#ffffff",
    raised="#f4f4f2",
    ink="#1b1b1a",
    faint="#595957",
    line="#d3d3cf",
    accent="#0b5cad",
    warn_ground="#fff3d6",
    warn_ink="#5c3c00",
    own="#1f6fc0",
    baseline="#c64b00",
    library="#0a5c43",
    marked="#a0307f",
    other="#82827e",
)
DARK = Palette(
    ground="#161615",
    raised="#222220",
    ink="#ecebe6",
    faint="#b0afa8",
    line="#41413d",
    accent="#7db8f5",
    warn_ground="#3d2f0e",
    warn_ink="#ffe2a3",
    own="#5aa5f5",
    baseline="#ff9a3c",
    library="#c7f0dc",
    marked="#cf62b0",
    other="#80807a",
)
THEMES = {"light": LIGHT, "dark": DARK}
