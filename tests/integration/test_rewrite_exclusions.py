"""A rewrite that is right at most modules stays there: `--rewrite-except`, and the search that finds where."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from etprof.backends.registry import BY_NAME, DEFAULT
from etprof.backends.rewrite import GraphRewrite
from etprof.base.process import run_command
from etprof.cli import main
from etprof.export.request import ExportOptions, ExportRequest
from etprof.optimize.optimizing import Optimizer
from etprof.run.optimization import Optimization
from etprof.run.program import load_export_manifest

MODEL = '''\
import torch
from torch import nn


class Squares(nn.Module):
    """What it gives is never negative, so a ReLU of it changes nothing."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(x * x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = Squares(), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), Squares()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.third(self.second(self.first(x)) + 1.0))
'''


class DroppedRelus(GraphRewrite):
    """Takes every ReLU for one of numbers that are not negative."""

    name = "dropped_relus"
    changes = "a ReLU is left out"
    legal = "of numbers that are not negative it changes nothing"
    rests_on = "a test"
    fails = False
    """Whether it raises where its input has eight columns after a linear layer."""

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        def replace_relu(x: torch.Tensor) -> torch.Tensor:
            path = torch.fx.traceback.get_current_meta()["nn_module_stack"]
            if cls.fails and "second.1" in {module for module, _ in path.values()}:
                raise ValueError("no such operator")
            return x * 1.0

        return {"aten.relu.default": replace_relu}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    exporter = BY_NAME[DEFAULT].exporter()
    known = exporter.rewrites()
    monkeypatch.setattr(type(exporter), "rewrites", lambda _: (DroppedRelus, *known))
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return f"{path}:Net"


def options(*exclusions: str, rewrites: tuple[str, ...] = ("dropped_relus",)) -> ExportOptions:
    return ExportOptions(
        rewrites=rewrites, rewrite_exclusions=exclusions, example_inputs=("float32:2x8",)
    )


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_site_that_breaks_is_left_out_and_the_rest_stays(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, *, is_failing: bool
) -> None:
    """L3-2: wrong outputs, or an export that fails, cost the whole rewrite."""
    monkeypatch.setattr(DroppedRelus, "fails", is_failing)
    request = ExportRequest(
        model, "fp32", options=options(rewrites=("dropped_relus", "spelled_norms"))
    )
    told: list[str] = []
    found = Optimizer(request, tmp_path / "found", 2.0, None, told.append).run()
    (left_out,) = [step for step in found.steps if "second.1" in step.rewrite]
    assert left_out.rewrite == "dropped_relus in second.1"
    assert ("rewrite dropped_relus fails" if is_failing else "outputs") in left_out.why
    # At the modules where it is right it was tried, and decided on by what it gains.
    (decided,) = [step for step in found.steps if step.rewrite == "dropped_relus"]
    assert decided.operators == 2
    assert decided.why in {"it changes no figure", "without it the program is better"}
    (trial,) = [
        trial for trial in found.trials
        if trial.exclusions == ("dropped_relus=second.1",) and len(trial.rewrites) == 2
    ]  # fmt: skip
    assert trial.passed
    # Again, from what is on record: the same, and nothing is exported.
    record = (tmp_path / "found/optimize.json").read_text()
    told.clear()
    assert Optimizer(request, tmp_path / "found", 2.0, None, told.append).run() == found
    assert (tmp_path / "found/optimize.json").read_text() == record
    assert not [line for line in told if line.startswith("trial")]


def test_a_rewrite_that_is_wrong_everywhere_is_left_out_whole(tmp_path: Path, model: str) -> None:
    path = Path(model.rpartition(":")[0])
    flipped = MODEL.replace("self.second(self.first(x)) + 1.0", "0.2 - self.second(self.first(x))")
    assert flipped != MODEL
    path.write_text(flipped.replace("x * x", "x - 0.1"))
    request = ExportRequest(
        model, "fp32", options=options(rewrites=("dropped_relus", "spelled_norms"))
    )
    found = Optimizer(request, tmp_path / "found", 2.0, None, lambda _: None).run()
    (left_out,) = [step for step in found.steps if "dropped_relus" in step.rewrite]
    assert (left_out.rewrite, left_out.kept) == ("dropped_relus", False)
    assert left_out.why == "with it its outputs are too far from eager's"


def test_the_program_made_without_a_module_says_so_and_its_command_makes_it_again(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("export", model, "--dtype", "fp32", "--input", "float32:2x8",
             "--rewrite", "dropped_relus,spelled_norms", "--full",
             "--rewrite-except", "dropped_relus=second.*", "--outdir", str(tmp_path))  # fmt: skip
    assert main([*words]) == 0
    assert "but for dropped_relus=second.*" in capsys.readouterr().out
    (program,) = tmp_path.glob("*.pte")
    manifest = load_export_manifest(program)
    assert manifest is not None
    assert {each.name: each.operators for each in manifest.rewrites} == {
        "dropped_relus": 2, "spelled_norms": 1,
    }  # fmt: skip
    assert manifest.option_words == ("--rewrite-except", "dropped_relus=second.*")
    # Another exclusion is another program, whose file does not replace this one.
    other = ExportRequest(model, "fp32", outdir=tmp_path, options=options("dropped_relus=first"))
    assert other.files().pte != program


@pytest.mark.parametrize(
    ("exclusion", "reason"),
    [
        ("dropped_relus=secnd", "the model has no such module; did you mean 'second'"),
        ("droped_relus=second", "--rewrite does not ask for droped_relus; name it there, or drop this"),
        ("spelled_norms=norm", "--rewrite does not ask for spelled_norms; name it there, or drop this"),
        ("second", "write REWRITE=MODULE, such as spelled_norms=encoder.*, in at most 200 characters"),
        ("dropped_relus=", "write REWRITE=MODULE"),
    ],
)  # fmt: skip
def test_an_exclusion_of_nothing_is_refused(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str], exclusion: str, reason: str
) -> None:
    words = ("export", model, "--dtype", "fp32", "--input", "float32:2x8",
             "--rewrite", "dropped_relus", "--outdir", str(tmp_path / "out"))  # fmt: skip
    assert main([*words, "--rewrite-except", exclusion]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.glob("out/*.pte"))


@pytest.mark.parametrize(
    ("exclusion", "reason"),
    [
        ("merged_transposes=second", "merged_transposes changes the lowering, where nothing says"),
        ("merged_transpose=second", "'merged_transpose' is no rewrite; did you mean 'merged_tran"),
    ],
)
def test_an_exclusion_of_what_knows_no_modules_is_refused(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str], exclusion: str, reason: str
) -> None:
    words = ("export", model, "--dtype", "fp32", "--input", "float32:2x8",
             "--rewrite", "all", "--outdir", str(tmp_path / "out"))  # fmt: skip
    assert main([*words, "--rewrite-except", exclusion]) == 2
    assert reason in " ".join(capsys.readouterr().err.split())


def test_a_recipe_has_what_its_program_leaves_out(tmp_path: Path) -> None:
    """Made by rewrites that its own process knows."""
    model = tmp_path / "net.py"
    # Two norms, so that one can be left as it is.
    model.write_text(MODEL.replace("self.norm = nn", "self.early, self.norm = nn.LayerNorm(8), nn")
                     .replace("self.first(x)", "self.early(self.first(x))"))  # fmt: skip
    request = ExportRequest(
        f"{model}:Net", "fp32", options=options("spelled_norms=early", rewrites=("spelled_norms",))
    )
    folder = tmp_path / "found"
    found = Optimizer(request, folder, 2.0, None, lambda _: None).run()
    assert isinstance(found, Optimization)
    assert found.best is not None
    assert found.best.rewrites == ("spelled_norms",)
    assert [each.operators for each in found.best.applied] == [1]
    manifest = json.loads((folder / "optimized.pte.json").read_text())
    assert manifest["options"]["rewrite_exclusions"] == ["spelled_norms=early"]
    again = tmp_path / "again.pte"
    made = run_command([sys.executable, folder / "recipe.py", again], timeout_s=300)
    assert made.exit_code == 0, made.stderr
    assert again.read_bytes() == (folder / "optimized.pte").read_bytes()
