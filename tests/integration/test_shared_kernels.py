"""Convolutions that share a kernel are exported, and what the lowering raises at stays outside the delegate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof.base.errors import ExportError
from etprof.export.exporter import export_model
from etprof.export.request import ExportOptions, ExportRequest

MODEL = """\
import torch
from torch import nn


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu(self.conv(x))
        return x


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.back = nn.Conv1d(8, 4, 3), nn.ConvTranspose1d(4, 8, 3)

    def tower(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(torch.tanh(self.conv(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x) - self.tower(torch.sigmoid(x))
"""


def manifest_of(
    folder: Path, model: str, precision: str, *, strict: bool = False
) -> dict[str, object]:
    (folder / "net.py").write_text(MODEL)
    request = ExportRequest(
        f"{folder / 'net.py'}:{model}", precision, outdir=folder, strict=strict,
        options=ExportOptions(example_inputs=("1x8x16",)),
    )  # fmt: skip
    export_model(request)
    document: dict[str, object] = json.loads(request.files().manifest.read_text())
    return document


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", ["Loop", "Towers"])
def test_a_kernel_that_several_calls_read_is_delegated(
    tmp_path: Path, model: str, precision: str
) -> None:
    """It ended with "Expected 4-dimensional input for 4-dimensional weight"."""
    manifest = manifest_of(tmp_path, model, precision)
    assert manifest["fallbacks"] == []
    report = json.loads(next(tmp_path.glob("*.delegation.json")).read_text())
    summary = report["methods"]["forward"]["summary"]
    assert (summary["delegate_calls"], summary["undelegated_operators"]) == (1, 0)
    # Copies cost nothing: the delegate stores equal kernels once.
    (program,) = tmp_path.glob("*.pte")
    assert program.stat().st_size < 16_000


def test_what_the_lowering_raises_at_is_left_outside_and_told(tmp_path: Path) -> None:
    """The quantiser sees the first of the calls alone, and XNNPACK's rules raise at the others."""
    fallbacks = manifest_of(tmp_path, "Loop", "int8")["fallbacks"]
    assert isinstance(fallbacks, list)
    (fallback,) = fallbacks
    assert fallback["reason"] == "RuntimeError: Weight and Input should both be quantized"
    assert "convolution.default of module conv" in fallback["name"]
    assert "net.py:12" in fallback["name"]


def test_a_strict_export_says_where_the_lowering_fails(tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match=r"Weight and Input should both be quantized; at conv.*:12"
    ):
        manifest_of(tmp_path, "Loop", "int8", strict=True)
