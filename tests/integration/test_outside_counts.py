"""What is outside the delegate is counted once: export, its tables, the run's operators, the finding."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import etprof as package
from etprof.run.delegation import DelegationReport
from etprof.tables.export import kinds_table, undelegated_tables
from tests.world.host import etprof

MODELS = """
import torch
from torch import nn


class Base(nn.Module):
    def get_eager_model(self):
        return self.eval()

    def get_example_inputs(self):
        return (torch.randn(1, 4, 16, 16),)


class Image(Base):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        x = torch.roll(torch.relu(self.stem(image)), 1, 2)
        x = torch.nn.functional.gelu(torch.cumsum(x, 1))
        return torch.softmax(self.head(x.mean((2, 3))), -1), torch.atan2(x, x + 1)


class Shapes(Base):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 8, 3, padding=1)

    def forward(self, image):
        x = torch.nn.functional.pixel_shuffle(self.stem(image), 2)
        left, right = x.split(1, 1)
        return torch.stack([left, right]).flip(0).reshape(2, -1).transpose(0, 1).contiguous()


class Attention(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, image):
        x = self.norm(image.reshape(1, 64, 16))
        return self.inner(x, x, x, need_weights=False)[0]


class Nothing(Base):
    def forward(self, image):
        return torch.atan2(image, image.cumsum(1)).cos()
"""


def of_export(folder: Path) -> tuple[DelegationReport, dict[str, int]]:
    """The export's description, and its three counts of operators outside."""
    (path,) = folder.glob("**/*.delegation.json")
    report = DelegationReport.model_validate_json(path.read_text())
    (method,) = report.methods.values()
    assert method.summary is not None
    kinds = kinds_table(report).records()[-1]
    # WHEN inside is counted, THEN by kind as in all
    assert kinds["inside"] == method.summary.delegated_operators
    listed = [table.records() for table in undelegated_tables(report, explain=False)]
    return report, {
        "summary": method.summary.undelegated_operators,
        "by kind": int(kinds["outside"] or 0),
        "by reason": sum(int(row["count"] or 0) for rows in listed for row in rows),
        "node by node": sum(len(t.rows) for t in undelegated_tables(report, explain=True)),
    }


def rules_of(run: Path) -> dict[str, Any]:
    document = json.loads((run / "analysis_summary.json").read_text())
    (findings,) = [entry["findings"] for entry in document["findings"]]
    return {finding["rule"]: finding for finding in findings}


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("Image", "fp32"), ("Image", "fp16"), ("Image", "int8"), ("Shapes", "fp32"),
        ("Attention", "fp16"), ("Attention", "int8"), ("Nothing", "fp32"),
    ],
)  # fmt: skip
def test_every_place_counts_the_same_operators_outside(
    tmp_path: Path, model: str, precision: str
) -> None:
    """Issue 42.5: 4 or 5 outside; F18 asked to report an operator that F5 was about."""
    (tmp_path / "net.py").write_text(MODELS)
    subject = (f"net.py:{model}", "--dtype", precision)
    words = ("--blocks", 1, "--min-seconds", 0.01, "--threads", 1)
    done = etprof(tmp_path, "profile", *subject, *words, "--out", "run", "--full")
    assert done.exit_code == 0, done.stderr
    _, counts = of_export(tmp_path / f"out_{model}")
    exported = etprof(tmp_path, "export", *subject, "--full", "--out", "again.pte")
    shown = re.search(r"│ operators outside +│ ([\d,]+) ", exported.stdout)
    assert shown is not None
    counts["export --full"] = int(shown[1])
    operators = package.load_run(tmp_path / "run").table("operators").to_dict("records")
    counts["operators of the run"] = sum(not row["delegated"] for row in operators)
    rules = rules_of(tmp_path / "run")
    if "F5" in rules:
        found = re.search(r"(\d+) operators? (?:outside|run on)", rules["F5"]["summary"])
        assert found is not None
        counts["F5"] = int(found[1])
    assert set(counts.values()) == {counts["summary"]}, counts
    # AND none of them is one whose module is not known
    assert [
        row["label"] for row in operators if not row["delegated"] and row["source"] is None
    ] == []
    assert "F18" not in rules
