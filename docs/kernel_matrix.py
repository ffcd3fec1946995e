"""Writes which products have microkernels for which instruction sets into docs/kernel_evidence.md.

usage: python -m docs.kernel_matrix

Of the library that ExecuTorch's wheel for Arm brings, from etprof's own table of its symbols
(python/etprof/backends/xnnpack/kernels.json). Of any other library: `etprof doctor --library FILE`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from docs.written_part import replace_part

from etprof.backends.library import find_products
from etprof.tables.machine import LIBRARY_PRODUCTS
from etprof.views.markdown import markdown_table

PAGE: Final = Path(__file__).with_name("kernel_evidence.md")
SYMBOLS: Final = PAGE.parents[1] / "python/etprof/backends/xnnpack/kernels.json"


def matrix() -> str:
    """Returns the table, with the version that it is of."""
    symbols = json.loads(SYMBOLS.read_text(encoding="utf-8"))
    lines = markdown_table(LIBRARY_PRODUCTS.of(find_products(symbols["kernels"])))
    version = symbols["executorch"].partition("+")[0]
    return "\n".join(["", f"`{symbols['library']}` of ExecuTorch {version}:", "", *lines, "", ""])


def updated(text: str) -> str:
    """Returns the page with the table as it is now."""
    return replace_part(text, "docs.kernel_matrix", matrix())


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), encoding="utf-8")
