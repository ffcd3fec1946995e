"""The same model with many operators more: about ten times slower, which no load can hide."""

from __future__ import annotations

from . import steady


class GateModel(steady.GateModel):
    """Thirty-six convolutions more."""

    extra = 36
