"""`bench`, `optimize` and `profile --generate` on the loopback phone, each with a device that is lost."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etprof.run.load import Run
from etprof.run.manifest import load_manifest
from tests.world.host import etprof

if TYPE_CHECKING:
    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated

pytestmark = pytest.mark.android
LOST = "nobody:1"
TALKER = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(16, 32)
            self.output = nn.Linear(32, 16)

        def forward(self, ids, position):
            return self.output(self.embed(ids[:, -1])) + 0.0 * position.to(torch.float32)

    class Talker:
        def get_eager_model(self):
            torch.manual_seed(0)
            return Net()

        def get_example_inputs(self):
            return (torch.tensor([[3]]), torch.tensor([0]))
"""


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_matrix_measures_a_phone_and_tells_of_a_lost_one(
    phone: LoopbackDevice, emulated: Emulated, tmp_path: Path
) -> None:
    device = {"kind": "android", "runner_path": str(emulated.runner)}
    matrix = {
        "name": "phones",
        "models": ["toy_cnn"],
        "precisions": ["fp32"],
        "sme": ["sme2", "off"],
        "devices": [
            {"name": "here", "serial": phone.serial, "trace_runner": str(emulated.trace_runner)}
            | device,
            {"name": "lost", "serial": LOST} | device,
        ],
        "measurement": {
            "blocks": 2, "runs": 1, "warmup": 0, "min_seconds": 0.001, "etdump_runs": 1,
            "operator_launches": 1,
        },
    }  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps(matrix))
    done = etprof(tmp_path, "bench", "m.json", "--out", "o")
    assert done.exit_code != 0
    rows = read(tmp_path / "o/summary.json")["rows"]
    answered = {(row["device"], row["sme"]): row["status"] for row in rows}
    assert answered == {
        ("here", "sme2"): "ok", ("here", "off"): "ok",
        ("lost", "sme2"): "failed", ("lost", "off"): "failed",
    }  # fmt: skip
    assert all(LOST in row["failure"] for row in rows if row["device"] == "lost")
    measured = load_manifest(tmp_path / "o/runs/here/toy_cnn_xnnpack_fp32")
    assert measured is not None
    purposes = {launch.purpose for launch in measured.launches}
    assert purposes == {"timing", "operators", "kernels", "outputs"}


def test_a_search_measures_on_the_phone_in_turns(
    phone: LoopbackDevice, emulated: Emulated, tmp_path: Path
) -> None:
    words = [
        "optimize", "toy_cnn", "--dtype", "fp32", "--rewrite", "kept_dimensions",
        "--target", "android", "--runner", str(emulated.runner), "--blocks", "2", "--outdir", "o",
    ]  # fmt: skip
    lost = etprof(tmp_path, *words, "--serial", LOST)
    assert lost.exit_code != 0
    assert LOST in lost.stderr
    assert "Traceback" not in lost.stderr
    # AND with a device that answers it goes on from there
    done = etprof(tmp_path, *words, "--serial", phone.serial)
    assert done.exit_code == 0, done.stderr
    found = read(tmp_path / "o/optimize.json")
    assert (found["target"], found["is_complete"]) == ("android", True)
    (timing,) = found["timings"]
    (gain,) = timing["gains"]
    assert (timing["candidate"], gain["pairs"]) == (["kept_dimensions"], 2)
    # Two launches of each prove nothing, so the program stays as it is.
    assert (gain["verdict"], found["best"]["rewrites"]) == ("inconclusive", [])
    run = Run.load(tmp_path / "o" / gain["run"])
    assert run.manifest is not None
    assert run.manifest.platform == "android"
    assert etprof(tmp_path, "validate", f"o/{gain['run']}").exit_code == 0


def test_a_language_model_answers_on_the_phone(
    phone: LoopbackDevice, emulated: Emulated, tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text(textwrap.dedent(TALKER))
    export = etprof(tmp_path, "export", "m.py:Talker", "--dtype", "fp32", "--out", "m.pte")
    assert export.exit_code == 0, export.stderr
    words = [
        "profile", "m.pte", "--generate", "3", "--prompt-length", "2", "--target", "android",
        "--runner", str(emulated.runner), "--blocks", "2", "--min-seconds", "0.001",
        "--iterations", "1", "--warmup", "0", "--out", "run",
    ]  # fmt: skip
    lost = etprof(tmp_path, *words, "--serial", LOST)
    assert (lost.exit_code, (tmp_path / "run/manifest.json").exists()) == (5, False)
    assert LOST in lost.stderr
    done = etprof(tmp_path, *words, "--serial", phone.serial)
    assert done.exit_code == 0, done.stderr
    run = Run.load(tmp_path / "run")
    tokens = {
        tuple(each.metrics.generated.tokens)
        for each in run.experiments
        if each.metrics is not None and each.metrics.generated is not None
    }
    (answer,) = tokens  # every SME mode says the same
    assert len(answer) == 3
    assert etprof(tmp_path, "validate", "run").exit_code == 0
