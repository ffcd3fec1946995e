"""Writes the matrix of a benchmark job to standard output; see `.ci/bench` for its variables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def read_axes() -> dict[str, Any]:
    """Returns the matrix without its devices: a file's, or made of comma-separated lists."""
    if path := os.environ.get("MATRIX"):
        document: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        return document
    axes = {
        "models": ("MODEL", "toy_cnn"),
        "precisions": ("PRECISION", "fp32"),
        "backends": ("BACKEND", "xnnpack"),
    }
    return {
        "name": "on-demand",
        **{axis: split(os.environ.get(name) or default) for axis, (name, default) in axes.items()},
    }


def split(text: str) -> list[str]:
    """Returns the words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def find_devices(pool: str) -> list[dict[str, Any]]:
    """Returns the pool's devices; ends the program when nobody lists them."""
    if pool in {"emulator", "host"}:
        kind = "local" if pool == "host" else pool
        return [{"name": pool, "kind": kind}]
    path = os.environ.get("ETPROF_DEVICES")
    pools = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
    if pool not in pools:
        sys.exit(f"the pool {pool!r} is not in ETPROF_DEVICES ({path or 'not set'}) of this runner")
    devices: list[dict[str, Any]] = pools[pool]
    return devices


def main() -> None:
    """Prints the matrix."""
    matrix = read_axes()
    matrix["devices"] = find_devices(os.environ.get("POOL") or "host")
    print(json.dumps(matrix, indent=2))


if __name__ == "__main__":
    main()
