"""Model files of the cases, as a user would have them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CLASS = """
    class {name}:
        def get_eager_model(self):
            torch.manual_seed(3)
            return {module}.{model}({arguments})

        def get_example_inputs(self):
            torch.manual_seed(4)
            return {module}.INPUTS[{module}.{model}]()
"""
_FURTHER = """
        def get_dynamic_shapes(self):
            return varying.SHAPES.get(varying.{model}, lambda: None)()

        def get_calibration_data(self):
            torch.manual_seed(5)
            return varying.SAMPLES.get(varying.{model}, list)()
"""


def write_model(folder: Path, module: str, model: str, arguments: str = "") -> str:
    """Writes a file that offers a model of tests/reports/MODULE.py; returns its name for commands."""
    file = folder / f"{model.lower()}.py"
    further = _FURTHER.format(model=model) if module == "varying" else ""
    text = _CLASS.format(name=model, module=module, model=model, arguments=arguments)
    body = textwrap.dedent(text + further)
    file.write_text(f"import torch\n\nfrom tests.reports import {module}\n{body}")
    return f"{file}:{model}"
