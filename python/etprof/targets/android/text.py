"""Text from a device is data of a stranger: cut, without control characters, never a command."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 200


def clean(text: str, *, longest: int = _LONGEST) -> str:
    """Returns `text` fit for a terminal, a report and one line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:longest])


def clean_or_none(text: str | None) -> str | None:
    """Returns cleaned text; None for nothing, which is how Android shows a missing property."""
    return clean(text.strip()) or None if text is not None else None
