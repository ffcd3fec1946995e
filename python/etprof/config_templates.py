"""The configs that ship with etprof, to start from."""

from __future__ import annotations

import importlib
from pathlib import Path

from etprof.base.errors import BuildError


def read_template(name: str) -> str:
    """Returns the text of configs/templates/<name>_template.json."""
    return _read_installed("templates", f"{name}_template.json")


def read_example(name: str) -> str:
    """Returns the text of configs/examples/<name>.json."""
    return _read_installed("examples", f"{name}.json")


def _read_installed(folder: str, name: str) -> str:
    for root in importlib.import_module("etprof.configs").__path__:
        path = Path(root, folder, name)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    msg = f"{folder}/{name} was not installed; install etprof again with `pip install .`"
    raise BuildError(msg)
