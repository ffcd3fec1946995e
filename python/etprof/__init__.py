"""Profiles PyTorch models on ExecuTorch with Arm SME2 switched on and off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof._version import __version__

if TYPE_CHECKING:
    from etprof.api import ComparisonResult, Run, compare, load_run, side_by_side

__all__ = ["ComparisonResult", "Run", "__version__", "compare", "load_run", "side_by_side"]


def __dir__() -> list[str]:
    """Names the API before its first use too, for those who complete names."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Imports the API at its first use: `import etprof` alone stays instant."""
    if name in __all__:
        from etprof import api

        return getattr(api, name)
    msg = f"module 'etprof' has no attribute {name!r}"
    raise AttributeError(msg)
