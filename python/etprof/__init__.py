"""Profiles PyTorch models on ExecuTorch with Arm SME2 switched on and off."""

from __future__ import annotations

__version__ = "0.1.0"
