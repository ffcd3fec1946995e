"""The formats of `etprof report`: each module here is one, under its own name.

A module has `FORMAT`. What it writes comes from `tables`, or from the assessment of a run.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etprof.analysis.assessment import Assessment

    Content = bytes | str | Mapping[str, Any] | Sequence[Any]
    """Bytes and text as they are, JSON data to be encoded."""
    Files = Mapping[str, Content]


@dataclass(frozen=True)
class Format:
    """What a report can be written as."""

    of_run: Callable[[Assessment], Files] | None = None
    """Content by file name of one run."""
    of_all: Callable[[Sequence[Assessment]], Files] | None = None
    """Instead, content by file name of several runs together."""
    check: Callable[[], object] = lambda: None
    """Raises BuildError when a package that it needs is not installed."""


def format_names() -> tuple[str, ...]:
    """Returns the names of all formats, those for people first; imports none of them."""
    names = {module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__)}
    return tuple(sorted(names, key=lambda name: (name not in {"html", "md"}, name)))


def load_format(name: str) -> Format:
    """Returns the format of that name."""
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    loaded_format: Format = module.FORMAT
    return loaded_format
