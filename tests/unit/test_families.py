"""Models of other packages by their names (X5): checked, asked for, never downloaded."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from etprof.base.errors import BuildError, ExportError, UsageError
from etprof.cli import main
from etprof.export.request import ExportRequest
from etprof.model_registry.families import FAMILIES, Family, find_family, load_class
from etprof.model_registry.registry import find_model, load_model

BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_missing_package_is_asked_for_by_name(
    family: Family,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """X5: exit code 3, and what to install."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(FAMILIES, family.prefix, replace(family, package="no_such_package"))
    assert main(["export", family.example]) == 3
    assert "pip install no_such_package" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.pte"))


@pytest.mark.parametrize(
    "name", ["executorch:nope", "executorch:../toy", "executorch:", "hf:os", "hf:"]
)
def test_a_name_that_the_package_lacks_is_refused(name: str) -> None:
    if name.startswith("hf:") and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    with pytest.raises(UsageError):
        load_model(name).get_eager_model()


TORCHVISION = """
import torch
class Weights:
    @staticmethod
    def transforms():
        return type("Crop", (), {"crop_size": [48]})()
class models:
    list_models = staticmethod(lambda: ["resnet18"])
    get_model_weights = staticmethod(lambda name: [Weights])
    @staticmethod
    def get_model_builder(name):
        def build(*, weights="downloaded", weights_backbone="downloaded"):
            assert weights is None and weights_backbone is None
            return torch.nn.Conv2d(3, 4, 3)
        return build
"""
TIMM = """
import torch
list_models = lambda: ["vit_tiny"]
def create_model(name, pretrained):
    assert not pretrained
    model = torch.nn.Conv2d(3, 4, 3)
    model.default_cfg = {"input_size": (3, 40, 56)}
    return model
"""


@pytest.mark.parametrize(
    ("name", "source", "shape"),
    [
        ("torchvision:resnet18", TORCHVISION, (1, 3, 48, 48)),
        ("timm:vit_tiny", TIMM, (1, 3, 40, 56)),
    ],
)
def test_models_of_a_package_are_built_without_weights_at_the_size_they_take(
    name: str,
    source: str,
    shape: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R027: no test called what builds them; stand-ins have the functions that it calls."""
    package = name.partition(":")[0]
    (tmp_path / f"{package}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, package, raising=False)
    model = load_model(name)
    (value,) = model.get_example_inputs()
    assert tuple(value.shape) == shape
    assert model.get_eager_model()(value).shape[1] == 4
    with pytest.raises(UsageError, match="no model"):
        load_model(f"{package}:nope").get_eager_model()
    monkeypatch.delitem(sys.modules, package)


def test_a_model_of_executorchs_own_examples_is_built_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R022: only names that are refused were tried, never one that builds."""
    monkeypatch.chdir(tmp_path)
    assert main(["export", "executorch:linear", "--precision", "fp32"]) == 0
    (manifest,) = tmp_path.rglob("*.pte.json")
    told = json.loads(manifest.read_text())
    assert (told["model"], told["precision"]) == ("executorch_linear", "fp32")


def test_files_are_named_after_family_and_model() -> None:
    assert ExportRequest("timm:vit_tiny").files().pte.name == "timm_vit_tiny_xnnpack_fp16.pte"
    assert ExportRequest("hf:../a b/c").model_name() == "hf_c"
    assert find_family("toy_cnn") is None
    assert find_family("path/to/file.py:Class") is None
    assert find_model("timm:vit_tiny").origin == "timm:vit_tiny"


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(_: str) -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
        torch.hub.download_url_to_file("https://example.org/weights.pth", "weights.pth")
        raise AssertionError

    before = torch.hub.download_url_to_file
    greedy = replace(FAMILIES["executorch"], build=fetch)
    monkeypatch.setitem(FAMILIES, "executorch", greedy)
    with pytest.raises(ExportError, match=r"example\.org"):
        load_class("executorch:add")().get_eager_model()
    assert torch.hub.download_url_to_file is before


def test_a_package_that_fails_to_import_says_which_pytorch_it_must_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(BuildError, match=torch.__version__.replace("+", r"\+")):
        load_class("timm:resnet18")().get_eager_model()


def test_a_local_configuration_has_random_weights_and_tensors_alone(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "config.json").write_text(json.dumps(BERT))
    model = load_model(f"hf:{tmp_path}")
    inputs = model.get_example_inputs()
    outputs = model.get_eager_model().eval()(*inputs)
    assert inputs[0].max() < 100
    assert [tuple(value.shape) for value in outputs] == [(1, 2)]


def test_a_model_that_would_not_fit_is_refused_before_it_takes_memory() -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    with pytest.raises(UsageError, match="billion"):
        load_model("hf:LlamaConfig").get_eager_model()


def test_models_lists_the_families(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etprof.export.model_loading.describe_models", list)
    assert main(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["families"]
    assert [each["prefix"] for each in listed] == [f"{name}:" for name in FAMILIES]
