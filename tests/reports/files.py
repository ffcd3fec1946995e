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


def write_model(folder: Path, module: str, model: str, arguments: str = "") -> str:
    """Writes a file that offers a model of tests/reports/MODULE.py; returns its name for commands."""
    file = folder / f"{model.lower()}.py"
    text = _CLASS.format(name=model, module=module, model=model, arguments=arguments)
    file.write_text(f"import torch\n\nfrom tests.reports import {module}\n{textwrap.dedent(text)}")
    return f"{file}:{model}"
