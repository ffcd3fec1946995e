"""One command each measures a plain module with its inputs, a factory, and a `.pt2`."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from etprof.base.errors import EtprofError
from etprof.cli import main
from etprof.targets.emulator.installation import locate

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.words = nn.Conv2d(3, 8, 3), nn.Embedding(50, 8)
            self.head = nn.Linear(8, 5)

        def forward(self, image, ids):
            seen = self.conv(image).mean((2, 3), keepdim=True).flatten(1)
            return self.head(seen + self.words(ids).mean(1))

    def make():
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
"""

try:
    locate()
    REASON = ""
except EtprofError as error:
    REASON = str(error)
EMULATOR = pytest.param(
    "emulator", marks=[pytest.mark.slow, pytest.mark.skipif(bool(REASON), reason=REASON)]
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(textwrap.dedent(NET), encoding="utf-8")
    head = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU()).eval()
    torch.export.save(torch.export.export(head, (torch.randn(1, 64),)), tmp_path / "head.pt2")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profile(*words: str) -> int:
    """One short measurement."""
    short = ["--blocks", "1", "--iterations", "1", "--threads", "1", "--warmup", "0"]
    return main(["profile", *words, *short, "--min-seconds", "0.001", "--operator-launches", "1"])


@pytest.mark.parametrize("target", ["local", EMULATOR])
@pytest.mark.parametrize(
    ("words", "shapes"),
    [
        (
            ("net.py:Net", "--input", "1x3x16x16", "--input", "int64:1x17"),
            [("float32", [1, 3, 16, 16]), ("int64", [1, 17])],
        ),
        (("net.py:make",), [("float32", [1, 64])]),
        (("head.pt2",), [("float32", [1, 64])]),
    ],
    ids=["floats-and-integers", "factory", "pt2"],
)
def test_one_command_measures_it(
    folder: Path,
    words: tuple[str, ...],
    shapes: list[tuple[str, list[int]]],
    target: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """U3-3: a plain `nn.Module` was refused; no flag took its inputs."""
    assert profile(*words, "--dtype", "fp32", "--target", target) == 0
    (manifest,) = folder.glob("out_*/artifacts/*.pte.json")
    document: dict[str, Any] = json.loads(manifest.read_text())
    methods = document["methods"]["forward"]
    assert [(each["dtype"], each["shape"]) for each in methods["inputs"]] == shapes
    assert methods["check"]["passed"]
    # AND the inputs that nobody gave are said
    told = capsys.readouterr().err
    assert ("no input was given: 1x64 fits its first layer" in told) == (words == ("net.py:make",))


def test_other_inputs_make_another_program(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program of an earlier command has other shapes than those that are asked for now."""
    assert folder.is_dir()
    for words, is_used in (((), False), ((), True), (("--input", "4x64"), False), ((), False)):
        assert profile("net.py:make", "--dtype", "fp32", *words) == 0
        assert ("exported earlier" in capsys.readouterr().err) == is_used
    assert profile("out_make/artifacts/make_xnnpack_fp32.pte", "--input", "4x64") == 2
    assert "--inputs takes its files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "inputs"),
    [("net.py:Net:fp32", ["1x3x16x16", "int64:1x17"]), ("head.pt2", [])],
    ids=["module", "pt2"],
)
def test_a_config_names_it_too(folder: Path, model: str, inputs: list[str]) -> None:
    """U3-3: wherever a model is named; an existing `.pt2` was taken for a program."""
    document = {
        "model": model,
        "example_inputs": inputs,
        "output_root": "run",
        "experiments": [{"name": "one", "iterations": 1, "warmup": 0, "threads": [1]}],
        "measurement": {"blocks": 1, "min_seconds": 0.001, "operator_launches": 1},
    }
    Path("config.json").write_text(json.dumps(document))
    assert main(["config", "check", "config.json"]) == 0
    assert main(["run", "config.json"]) == 0
    assert (folder / "run" / "report.html").is_file()
    Path("config.json").write_text(json.dumps({**document, "example_inputs": ["3x"]}))
    assert main(["config", "check", "config.json"]) == 2
