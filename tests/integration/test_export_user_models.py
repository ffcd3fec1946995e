"""Models that are not etprof's, exported through the command line alone."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from etprof.cli import run_command_line
from etprof.export.runtime_check import execute
from etprof.model_registry import registry


def export(folder: Path, text: str, class_name: str, *flags: str) -> dict[str, Any]:
    """Writes a model file, exports it and returns the export manifest."""
    file = folder / "my_model.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    words = ["export", "--model", f"{file}:{class_name}", "--outdir", str(folder / "out")]
    assert run_command_line([*words, "--quiet", *flags]) == 0
    (manifest,) = (folder / "out").glob("*.pte.json")
    document: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
    return document


def run(folder: Path, manifest: dict[str, Any], *flags: str) -> None:
    """Measures the exported program once, by the command line too."""
    program, measured = folder / "out" / manifest["pte"]["path"], folder / "measured"
    words = ["profile", str(program), "--blocks", "1", "--iterations", "1", "--threads", "1"]
    words += ["--warmup", "0", "--min-seconds", "0.001", "--out", str(measured), *flags]
    assert run_command_line(words) == 0
    assert (measured / "analysis_summary.json").is_file()


SINGLE_FILE = """
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(100, 16)
            self.tags = nn.Linear(16, 5)

        def forward(self, ids, *, scale):
            return {"tags": self.tags(self.words(ids) * scale), "length": (ids > 0).sum()}

    class TaggerModel:
        def get_eager_model(self):
            return Tagger()

        def get_example_inputs(self):
            return (torch.randint(100, (1, 12)),)

        def get_example_kwarg_inputs(self):
            return {"scale": torch.full((1,), 2.0)}
"""


def test_a_single_file_with_integer_and_keyword_inputs(tmp_path: Path) -> None:
    manifest = export(tmp_path, SINGLE_FILE, "TaggerModel", "--dtype", "fp16")
    # THEN token ids stay integers and what is floating-point is cast
    assert [each["dtype"] for each in manifest["methods"][manifest["method"]]["inputs"]] == [
        "int64",
        "float16",
    ]
    # The reference is float32's own: stored in halves it would add its rounding to each comparison.
    assert [each["dtype"] for each in manifest["methods"][manifest["method"]]["references"]] == [
        "float32",
        "int64",
    ]
    assert manifest["methods"]["forward"]["check"]["passed"]
    run(tmp_path, manifest)


INDICES = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.near, self.linear = nn.Embedding(64, 16), nn.Linear(16, 8)

        def forward(self, tokens):
            places = torch.cumsum(tokens.ne(1).int(), dim=1).type_as(tokens) + 1
            return self.linear(self.near(places * 2) * 3.0)

    class Model:
        def get_eager_model(self):
            return Net()

        def get_example_inputs(self):
            return (torch.randint(2, 64, (1, 12)),)
"""


def test_indices_stay_integers_when_a_model_is_quantised(tmp_path: Path) -> None:
    """X3: RoBERTa counts positions so; the quantiser made 1 a float, and lookups failed."""
    manifest = export(tmp_path, INDICES, "Model", "--quantize", "int8")
    assert manifest["methods"]["forward"]["check"]["passed"]
    # The linear layer and the product of floating-point numbers.
    assert manifest["quantization"]["methods"]["forward"]["quantized_operators"] == 2


MASKED = """
    import torch
    from torch import nn

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)
            self.register_buffer("mask", torch.ones(8, 8))

        def forward(self, ids):
            scores = self.head(self.embed(ids) + self.mask[ids])
            return scores[:, -1:] + self.mask[ids, ids].sum()

    class Model:
        def get_eager_model(self):
            return Masked()

        def get_example_inputs(self):
            return (torch.tensor([[1, 2, 3]]),)
"""


def test_a_computed_scalar_is_not_quantised(tmp_path: Path) -> None:
    """X3: ExecuTorch's lowering ended in an IndexError for one."""
    manifest = export(tmp_path, MASKED, "Model", "--quantize", "int8")
    assert manifest["methods"]["forward"]["check"]["passed"]


DYNAMIC = """
    import torch
    from torch import nn
    from torch.export import Dim

    class Model:
        def get_eager_model(self):
            return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

        def get_example_inputs(self):
            return (torch.randn(1, 20, 8),)

        def get_dynamic_shapes(self):
            return ({1: Dim("length", min=2, max=64)},)
"""


def test_a_model_with_dynamic_shapes_takes_other_lengths(tmp_path: Path) -> None:
    manifest = export(tmp_path, DYNAMIC, "Model", "--dtype", "fp32")
    program = tmp_path / "out" / manifest["pte"]["path"]
    for length in (2, 20, 64):
        (output,) = execute(program, None, "forward", [torch.randn(1, length, 8)])
        assert output.shape == (1, length, 4)
    run(tmp_path, manifest)


TWO_METHODS = """
    import torch
    from torch import nn
    from etprof.model_registry.eager_model import EagerModelBase, ExportMethod

    class Model(EagerModelBase):
        def get_eager_model(self):
            return nn.Linear(8, 4)

        def get_example_inputs(self):
            return (torch.randn(1, 8),)

        def get_methods(self):
            encode, classify = self.get_eager_model(), nn.Linear(4, 2)
            return {
                "encode": ExportMethod(encode, self.get_example_inputs()),
                "classify": ExportMethod(classify, (torch.randn(1, 4),)),
            }
"""


def test_a_model_with_two_methods(tmp_path: Path) -> None:
    manifest = export(tmp_path, TWO_METHODS, "Model", "--dtype", "fp32")
    assert list(manifest["methods"]) == ["encode", "classify"]
    assert manifest["method"] == "encode"
    assert all(each["check"]["passed"] for each in manifest["methods"].values())
    assert manifest["methods"]["classify"]["inputs"][0]["path"].endswith("/classify_input_0.bin")
    run(tmp_path, manifest, "--method", "classify")


BERT = """
    import torch
    from transformers import BertConfig, BertModel

    class Model:
        def get_eager_model(self):
            config = BertConfig(
                vocab_size=200, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
                intermediate_size=64, return_dict=False,
            )
            return BertModel(config, add_pooling_layer=False)

        def get_example_inputs(self):
            return (torch.randint(200, (1, 16)), torch.ones(1, 16, dtype=torch.int64))
"""

VIT = """
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    class Model:
        def get_eager_model(self):
            config = ViTConfig(
                hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                image_size=32, patch_size=8,
            )
            return ViTForImageClassification(config)

        def get_example_inputs(self):
            return (torch.randn(1, 3, 32, 32),)
"""


# transformers warns about its own deprecated parts while it is imported.
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("text", "dtype"), [(BERT, "int64"), (VIT, "float16")], ids=["bert", "vit"]
)
def test_transformers_models(tmp_path: Path, text: str, dtype: str) -> None:
    pytest.importorskip("transformers")
    manifest = export(tmp_path, text, "Model", "--dtype", "fp16")
    assert manifest["methods"][manifest["method"]]["inputs"][0]["dtype"] == dtype
    assert manifest["methods"]["forward"]["check"]["passed"]
    run(tmp_path, manifest)


def test_an_installed_package_adds_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an installed distribution with an entry point
    (tmp_path / "their_models.py").write_text(textwrap.dedent(DYNAMIC), encoding="utf-8")
    metadata = tmp_path / "their_models-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: their-models\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(
        "[etprof.models]\ntheirs = their_models:Model\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    # THEN its model is found by the entry point's name, and loads
    assert registry.find_models()["theirs"].origin == "entry point their_models:Model"
    assert type(registry.load_model("theirs")).__name__ == "Model"
