"""`etprof models` lists what can be exported, also what cannot be loaded here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from etprof.cli import main
from etprof.export.model_loading import describe_models
from etprof.export.operators import MacCounter, call_nodes, count_macs

if TYPE_CHECKING:
    from pathlib import Path


def list_models(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["models", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    return {each["name"]: each for each in document["models"]}


def test_models_tells_inputs_parameters_and_macs(capsys: pytest.CaptureFixture[str]) -> None:
    models = list_models(capsys)
    (forward,) = models["toy_cnn"]["methods"]
    assert forward == {"name": "forward", "inputs": ["float32[1, 3, 32, 32]"], "macs": 819_840}
    assert models["toy_cnn"]["parameters"] == 3978
    # Attention's two products count: 4 layers x 2 x 4 heads x 128 x 128 x 64.
    (encoder,) = models["transformer_encoder"]["methods"]
    assert encoder["macs"] == 4 * 128 * (4 * 256**2 + 8 * 256**2) + 4 * 2 * 4 * 128 * 128 * 64
    assert [each["name"] for each in models["decoder"]["methods"]] == ["prefill", "decode"]


def test_a_model_whose_package_is_missing_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entry = list_models(capsys)["efficient_sam"]
    assert entry["problem"] == (
        "model 'efficient_sam' needs a package that is missing here: pip install "
        "git+https://github.com/yformer/EfficientSAM"
    )
    assert entry["needs"] == ["git+https://github.com/yformer/EfficientSAM"]


class Mixed(torch.nn.Module):
    """Attention of one tensor with itself, a transposed and a grouped convolution, a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.ConvTranspose1d(8, 4, 3)
        self.grouped = torch.nn.Conv1d(4, 6, 3, groups=2)
        self.attention = torch.nn.functional.scaled_dot_product_attention

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        attended = self.attention(x, x, x)
        return self.grouped(self.up(x)), torch.baddbmm(attended, attended, x.mT @ x)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_macs_are_counted_alike_before_and_after_the_export() -> None:
    """A-D19: PyTorch counted the eager model, etprof the lowered one, by other rules."""
    module, x = Mixed().eval(), torch.zeros(2, 8, 16)
    with torch.no_grad(), MacCounter() as eager, sdpa_kernel(SDPBackend.MATH):
        module(x)
    exported = torch.export.export(module, (x,))
    decomposed = exported.run_decompositions()
    up, grouped = 2 * 8 * 16 * 4 * 3, 2 * 6 * 16 * 2 * 3
    attention, products = 2 * 8 * 8 * (16 + 16), 2 * 16 * 16 * 8 + 2 * 8 * 16 * 16
    expected = up + grouped + attention + products
    assert eager.macs == expected
    assert sum(count_macs(node) or 0 for node in call_nodes(decomposed.graph)) == expected
    (whole,) = [node for node in call_nodes(exported.graph) if "attention" in node.name]
    assert count_macs(whole) == attention


def test_a_model_that_looks_at_values_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X4: `models` said of a model that exports that it cannot be created."""
    folder = tmp_path / "looking"
    folder.mkdir()
    (folder / "model.py").write_text(
        "import torch\n"
        "class Looking:\n"
        "    def get_eager_model(self):\n"
        "        return torch.nn.Linear(4, int(torch.ones(2).sum().item()))\n"
        "    def get_example_inputs(self):\n"
        "        return (torch.ones(1, 4),)\n"
    )
    monkeypatch.setenv("ETPROF_MODEL_PATH", str(tmp_path))
    found = {each["name"]: each for each in describe_models()}["looking"]
    assert found["problem"] is None
    assert found["parameters"] == 10
