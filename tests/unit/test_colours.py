"""Colours of operators' categories: all eyes tell them apart, and text on them can be read (U3)."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from coloraide import Color

import etprof.views

STYLE = Path(etprof.views.__file__).parent / "templates" / "report.css"
LEAST_DIFFERENCE = 15
"""ΔE by CIEDE2000."""
LEAST_CONTRAST = 4.5
"""Of text: level AA of WCAG 2.2."""
VISIONS = {
    "usual": None,
    "no red cones": "protan",
    "no green cones": "deutan",
    "no blue cones": "tritan",
}


def colours(theme: str, letter: str) -> list[str]:
    light, dark = STYLE.read_text().split("prefers-color-scheme: dark")[:2]
    found = re.findall(rf"--{letter}\d: (#[0-9a-f]{{6}});", light if theme == "light" else dark)
    assert len(found) == 6
    return found


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("method", ["machado", "brettel"])
def test_every_two_colours_differ(theme: str, vision: str, method: str) -> None:
    seen = [Color(each) for each in colours(theme, "c")]
    cones = VISIONS[vision]
    if cones is not None:
        seen = [each.filter(cones, method=method) for each in seen]
    least = min(a.delta_e(b, method="2000") for a, b in itertools.combinations(seen, 2))
    assert least >= LEAST_DIFFERENCE


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_on_a_colour_can_be_read(theme: str) -> None:
    for behind, text in zip(colours(theme, "c"), colours(theme, "t"), strict=True):
        assert Color(behind).contrast(text) >= LEAST_CONTRAST, (behind, text)
