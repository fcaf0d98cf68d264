"""Colours are told apart by everybody, on both grounds: computed, not believed."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from colorspacious import cspace_convert

from autogemm.catalogue.palette import THEMES, Palette

# As in CAM02-UCS, where 1 is a difference that is just seen.
APART = 12.0
BLINDNESS = (None, "protanomaly", "deuteranomaly", "tritanomaly")


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])


def luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb(colour)]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, other: str) -> float:
    """Contrast as defined by WCAG 2.2: 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def seen(colour: str, blindness: str | None) -> np.ndarray:
    """As somebody sees it who lacks one kind of cones (Machado, Oliveira and Fernandes, 2009)."""
    found = rgb(colour)
    if blindness is not None:
        space = {"name": "sRGB1+CVD", "cvd_type": blindness, "severity": 100}
        found = np.clip(cspace_convert(found, space, "sRGB1"), 0, 1)
    return np.asarray(cspace_convert(found, "sRGB1", "CAM02-UCS"))


def test_the_formula_gives_the_values_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("palette", THEMES.values(), ids=list(THEMES))
def test_contrast_with_both_grounds(palette: Palette) -> None:
    for ground in (palette.ground, palette.raised):
        assert all(contrast(mark, ground) >= 3 for mark in palette.roles())
        for text in (palette.ink, palette.faint, palette.accent):
            assert contrast(text, ground) >= 4.5
    assert contrast(palette.warn_ink, palette.warn_ground) >= 4.5


@pytest.mark.parametrize("palette", THEMES.values(), ids=list(THEMES))
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_roles_differ_for_everybody(palette: Palette, blindness: str | None) -> None:
    for one, other in combinations(palette.roles(), 2):
        distance = np.linalg.norm(seen(one, blindness) - seen(other, blindness))
        assert distance > APART, (one, other)


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_the_scale_of_heat_maps_rises_in_brightness_for_everybody(blindness: str | None) -> None:
    cividis = pytest.importorskip("matplotlib").colormaps["cividis"]
    steps = [seen("#" + bytes(cividis(i / 8, bytes=True)[:3]).hex(), blindness) for i in range(9)]
    assert all(after[0] - before[0] > 5 for before, after in pairwise(steps))
