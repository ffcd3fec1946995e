"""Argument types: numbers within bounds, refused with the bound when they are outside."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_THREADS = 1024
MOST_LAUNCHES = 100_000
MOST_INFERENCES = 1_000_000_000
LARGEST_SEED = 2**64 - 1
"""What etprof-runner takes."""


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Returns a type for whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else None
        if value is None or value < least:
            msg = f"must be at least {least}, not {text}"
            raise argparse.ArgumentTypeError(msg)
        if most is not None and value > most:
            msg = f"must be at most {most}, not {value}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return parse


def seconds(text: str) -> float:
    """A time above 0 s."""
    value = _number(text)
    if not 0 < value < math.inf:
        msg = f"must be above 0 s, not {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


def fraction(text: str) -> float:
    """A number above 0 and below 1."""
    value = _number(text)
    if not 0 < value < 1:
        msg = f"must be a fraction above 0 and below 1, such as 0.02, not {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _number(text: str) -> float:
    """Returns NaN, which is within no bounds, for what is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
