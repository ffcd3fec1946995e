"""X1: a program whose outputs are wrong is told at export, and on every later page.

One is ruined by its calibration, the other by a layer norm that is summed in half precision.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from etprof.analysis.compare.comparability import Side
from etprof.analysis.compare.comparison import compare_sides
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import ExportError
from etprof.cli import main
from etprof.run.load import Run
from etprof.tables.verdicts import WRONG, badge_of

MODELS = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.norm, self.b = nn.Linear(64, 512), nn.LayerNorm(512), nn.Linear(512, 8)

        def forward(self, x):
            return self.b(self.norm(100 * self.a(x)).relu())

    class Right:
        def get_eager_model(self):
            return Net()

        def get_example_inputs(self):
            torch.manual_seed(1)
            return (torch.randn(4, 64),)

    class Ruined(Right):
        def get_calibration_data(self):
            return [(self.get_example_inputs()[0] * 1e-3,)]
"""
CASES = {
    "int8": ("Ruined", ["--quantize", "int8"], "precision"),
    "fp16": ("Right", ["--dtype", "fp16", "--keep-fp16-sums"], "lowering"),
}
BRIEFLY = ["--blocks", "2", "--iterations", "2", "--min-seconds", "0.01"]


def test_a_right_program_is_measured_after_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(textwrap.dedent(MODELS))
    assert main(["profile", "m.py:Right", *BRIEFLY]) == 0
    (run,) = tmp_path.glob("out_*/runs/*")
    launches = json.loads((run / "manifest.json").read_text())["launches"]
    first, *others = (each["purpose"] for each in launches)
    assert first == "outputs"
    assert sorted(others) == ["operators"] * 6 + ["timing"] * 2
    loaded = analyze_run(Run.load(run))
    found = {(each.where, each.question): each.answer for each in loaded.verdicts}
    assert len(found) == 4
    assert set(found.values()) == {"passed"}
    assert main(["validate", str(run)]) == 0
    # AND GIVEN a program that gives something else, nothing is timed
    (pte,) = tmp_path.glob("out_*/artifacts/*.pte")
    for file in pte.with_name(f"{pte.name}.data").glob("reference_*.bin"):
        forge(pte, file)
    other = tmp_path / "other"
    assert main(["profile", str(pte), *BRIEFLY, "--out", str(other)]) == ExportError.exit_code
    manifest = json.loads((other / "manifest.json").read_text())
    assert [each["purpose"] for each in manifest["launches"]] == ["outputs"]
    assert manifest["notes"][0].startswith("stopped before timing: the outputs are wrong")


def forge(pte: Path, reference: Path) -> None:
    """Makes the export say that other outputs are right."""
    from etprof.base.files import hash_file

    reference.write_bytes(bytes(reversed(reference.read_bytes())))
    manifest = pte.with_name(f"{pte.name}.json")
    document = json.loads(manifest.read_text())
    (entry,) = document["methods"]["forward"]["references"]
    entry["sha256"] = hash_file(reference)
    manifest.write_text(json.dumps(document))


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_program_is_told_on_every_page(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(textwrap.dedent(MODELS))
    name, flags, question = CASES[case]
    # export
    assert main(["export", f"m.py:{name}", *flags, "--out", "p.pte", "--quiet"]) == 6
    check = json.loads(Path("p.pte.json").read_text())["methods"]["forward"]["check"]
    assert check["passed"] is False
    assert {each["question"]: each["answer"] for each in check["verdicts"]}[question] == "failed"
    # profile
    words = ["profile", "p.pte", *BRIEFLY, "--out", "run"]
    assert main(words) == 6
    assert not Path("run").exists()
    capsys.readouterr()
    assert main([*words, "--allow-inaccurate"]) == 0
    assert capsys.readouterr().out.startswith("WRONG OUTPUTS. ")
    # report
    assert main(["report", "run", "--format", "md,html,json", "--out", "pages"]) == 0
    assert "> **Wrong outputs.** " in Path("pages/report.md").read_text()
    assert "<strong>Wrong outputs.</strong>" in Path("pages/report.html").read_text()
    rows = json.loads(Path("pages/report.json").read_text())
    assert "failed" in {each["answer"] for each in rows["accuracy"]}
    # compare
    (experiment,) = (run := analyze_run(Run.load(Path("run")))).experiments
    side = Side(run, experiment, run.manifest)
    assert badge_of(compare_sides(side, side)) == WRONG
    capsys.readouterr()
    assert main(["compare", "run", "run"]) == 0
    assert "WRONG OUTPUTS" in capsys.readouterr().out.splitlines()[0]
    # history: its row, and what is posted as a comment
    store = ["--store", "h.sqlite"]
    assert main(["history", "add", "run", *store]) == 0
    capsys.readouterr()
    assert main(["history", "list", *store]) == 0
    assert "wrong outputs" in capsys.readouterr().out
    check_words = ["history", "check", "--baseline", "window:3", "--format", "markdown", *store]
    assert main(check_words) == 1
    assert "its outputs are wrong" in capsys.readouterr().out
