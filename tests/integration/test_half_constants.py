"""Masks that 16 bits do not hold: a program that PyTorch and ExecuTorch refuse to run otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.model_registry.eager_model import EagerModelBase
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from pathlib import Path


class Attention(nn.Module):
    """Scores with a mask, as models write it by hand."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.query = kind, nn.Linear(32, 32)
        self.register_buffer("hidden", torch.tril(torch.ones(8, 8)) == 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ x.transpose(1, 2)
        hidden = self.get_buffer("hidden")
        if self.kind == "masked_fill":
            scores = scores.masked_fill(hidden, -1e9)
        elif self.kind == "full":
            low = torch.full((8, 8), -1e9, dtype=x.dtype)
            scores = torch.where(hidden, low, scores)
        elif self.kind == "number":
            scores = torch.where(hidden, -3.4e38, scores)
        else:
            scores = torch.where(hidden, torch.tensor(-3.4e38), scores)
        return torch.softmax(scores, -1) @ x


class _Model(EagerModelBase):
    kind = ""

    def get_eager_model(self) -> nn.Module:
        torch.manual_seed(0)
        return Attention(self.kind)

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        return (torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(1)),)


class Filled(_Model):
    kind = "masked_fill"


class Full(_Model):
    kind = "full"


class Number(_Model):
    kind = "number"


class Constant(_Model):
    kind = "tensor"


@pytest.mark.parametrize(
    ("model", "precision", "changed"),
    [
        ("Filled", "fp16", {"masked_fill": 1}),
        ("Full", "fp16", {"full": 1}),
        ("Number", "fp16", {"where": 1}),
        ("Constant", "fp16", {"where": 1}),
        ("Number", "bf16", {"where": 1}),
        ("Filled", "bf16", {}),
        ("Filled", "fp32", {}),
    ],
)
def test_a_mask_beyond_the_type_is_its_limit(
    model: str, precision: str, changed: dict[str, int], tmp_path: Path
) -> None:
    files = export_model(ExportRequest(f"{__file__}:{model}", precision, outdir=tmp_path))
    manifest = load_export_manifest(files.pte)
    assert manifest is not None
    forward = manifest.methods["forward"]
    assert forward.clamped == changed
    assert forward.check is not None
    # Both verdicts passed, or the export had failed; what they rest on is finite.
    assert {each.answer for each in forward.check.verdicts} == {"passed"}
    assert all(each.snr_db is not None and each.snr_db > 30 for each in forward.check.outputs)
