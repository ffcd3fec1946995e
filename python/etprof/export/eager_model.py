"""Where models of etprof 0.2 import `EagerModelBase` from; it goes with 0.4 (docs/stability.md)."""

import warnings

from etprof.model_registry.eager_model import EagerModelBase

__all__ = ["EagerModelBase"]

warnings.warn(
    "etprof.export.eager_model is etprof.model_registry.eager_model; this name goes with 0.4",
    DeprecationWarning,
    stacklevel=2,
)
