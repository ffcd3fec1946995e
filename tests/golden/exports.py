"""What an export of a net with operators of all kinds says, prints and predicts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.golden.json_text import describe_json
from tests.golden.transcripts import scrubbed
from tests.world.host import etprof

EXPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "fp32": ("--dtype", "fp32", "--graph", "--trace"),
    "int8": ("--dtype", "int8", "--channels-last"),
    "rewritten": ("--dtype", "fp16", "--rewrite", "all"),
}
_NET: Final = '''import torch
from torch import nn


class Net(nn.Module):
    """Has convolutions of every kind, products, and what no delegate takes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.grouped = nn.Conv2d(8, 8, 1, groups=2)
        self.norms = nn.BatchNorm2d(8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = self.grouped(torch.nn.functional.hardtanh(self.depthwise(x)))
        x = self.pointwise(self.norms(x))
        up = self.up(x).mean((2, 3))
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        q, k, v = self.qkv(tokens).chunk(3, -1)
        y = torch.softmax(q @ k.transpose(1, 2), -1) @ v
        y = torch.nn.functional.gelu(y) * torch.sigmoid(y) ** 2
        return self.head(y.cumsum(1)), up[:, 1] + torch.arange(1.0, 2.0)
'''
_COMPUTED: Final = re.compile(r"\d+(\.\d+)? dB")
_OF_THE_HOST: Final = (
    "sha256", "versions", "_snr", "snr_db", "cosine", "max_abs", "start_ns", "prediction_source",
    "duration_ns", "source.code", "etrecord", "verdicts", "summed",
)  # fmt: skip
"""What is computed or timed here, with digits of one CPU, and what repeats the net."""


def export_file(name: str) -> str:
    """The approved file of an export."""
    return f"{name}_export.txt"


def describe_export(folder: Path, name: str) -> str:
    """What is printed, and a line for each record of what is written beside the program."""
    (folder / "net.py").write_text(_NET)
    done = etprof(folder, "export", "net.py:Net", "--input", "1x3x8x8", *EXPORTS[name], "--full",
                  "--outdir", "out", columns=100)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    parts = [_COMPUTED.sub("N dB", done.stdout)]
    for path in sorted(folder.glob("out/*.json")):
        if ".stages." in path.name:
            continue
        parts.append(f"# {path.name}")
        parts += describe_json(json.loads(path.read_text("utf-8")), _OF_THE_HOST)
    return scrubbed("\n".join(parts), folder)
