"""Which instruction of a real program is which operator: what says in a report whose time it is."""

from __future__ import annotations

import json
from pathlib import Path

from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.up = nn.RMSNorm(16), nn.Linear(16, 16)
        self.second, self.down = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        x = x + self.up(self.first(x))
        return x + self.down(nn.functional.silu(self.second(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.cumsum(1)
"""


def test_instructions_go_up_through_the_model(tmp_path: Path) -> None:
    """Casts in half precision had the module and the line of casts elsewhere."""
    (tmp_path / "net.py").write_text(MODEL)
    options = ExportRequest(f"{tmp_path / 'net.py'}:Net").options
    options = type(options)(example_inputs=("1x5x16",))
    request = ExportRequest(
        f"{tmp_path / 'net.py'}:Net", precision="fp16", outdir=tmp_path, options=options
    )
    export_model(request)
    report = json.loads(request.files().report.read_text())
    outside = [row for row in report["methods"]["forward"]["operators"] if row["delegate"] is None]
    # Those of weights come first, whatever they are of.
    casts = [row for row in outside if row["is_cast"] and row["shape"] == [1, 5, 16]]
    assert len(casts) >= 6
    # What the report lists in the order of execution is executed in that order.
    instructions = [row["instruction"] for row in outside]
    assert instructions == sorted(set(instructions))
    blocks = [
        row["origin"]["module_path"].split(".")[1] for row in casts if row["origin"]["module_path"]
    ]
    assert blocks == sorted(blocks)
    assert set(blocks) == {"0", "1"}
