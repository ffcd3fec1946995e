"""`etprof models` lists what can be exported, also what cannot be loaded here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from etprof.cli import main

if TYPE_CHECKING:
    import pytest


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
