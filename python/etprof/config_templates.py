"""The configs that ship with etprof, to start from."""

from __future__ import annotations

import importlib
from pathlib import Path

from etprof.errors import BuildError


def read_template(name: str) -> str:
    """Returns the text of configs/templates/<name>_template.json."""
    for folder in importlib.import_module("etprof.configs").__path__:
        path = Path(folder, "templates", f"{name}_template.json")
        if path.is_file():
            return path.read_text(encoding="utf-8")
    msg = f"the template {name!r} was not installed; install etprof again with `pip install .`"
    raise BuildError(msg)
