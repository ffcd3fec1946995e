"""Further single changes that went unnoticed, in what pages, searches and refusals say."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from etprof.analysis.assessment import assess_runs
from etprof.analysis.findings.coverage import _sizes, _waste
from etprof.analysis.findings.work import _crossing
from etprof.backends import backend
from etprof.backends.xnnpack.exporting import XnnpackExporter
from etprof.base.errors import ExportError, UsageError
from etprof.base.process import Completed
from etprof.cli.optimize import _write_page
from etprof.cli.parser import HelpPage
from etprof.export.runtime_check import bundle_program
from etprof.export_llm.planning import LlmRequest, plan_export
from etprof.model_registry.eager_model import ExportMethod
from etprof.run.delegation import DelegateNode, GraphOperator, MethodReport
from etprof.run.load import Run as LoadedRun
from etprof.tables.alternatives import side_by_side
from etprof.targets.android.session import DeviceSession, RemoteFile
from tests.known_runs import write_run
from tests.unit.test_findings import convolutions, one
from tests.unit.test_findings_hold import described, node, traced
from tests.unit.test_optimize_page import search as searched
from tests.unit.test_optimize_search import program, search

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.run.optimization import Trial


@pytest.mark.parametrize("kind", ["input", "output"])
def test_a_bundle_takes_no_channels_last_tensor(kind: str) -> None:
    rows, last = (
        torch.ones(1, 2, 3, 4),
        torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),
    )
    method = ExportMethod(nn.Identity(), (last if kind == "input" else rows,))
    outputs = {"forward": [last if kind == "output" else rows]}
    with pytest.raises(
        ExportError, match=rf"no room for {kind} 0 in dimension order \[0, 2, 3, 1\]"
    ):
        bundle_program(None, {"forward": method}, outputs)


def test_a_result_that_is_read_outside_too_crosses() -> None:
    """Once by its own delegate and once by an operator outside."""
    report = MethodReport(
        operators=(
            GraphOperator(name="product", operator="mm", delegate=0, readers=2),
            GraphOperator(name="sum", operator="add", delegate=0, readers=1, inputs=("product",)),
            GraphOperator(name="sort", operator="sort", inputs=("product", "sum"), readers=1),
        )
    )  # fmt: skip
    assert [operator.name for operator in _crossing(report)] == ["product", "sum"]


def test_a_result_that_its_delegate_alone_reads_does_not_cross() -> None:
    report = MethodReport(
        operators=(
            GraphOperator(name="product", operator="mm", delegate=0, readers=1),
            GraphOperator(name="sum", operator="add", delegate=0, readers=0, inputs=("product",)),
        )
    )
    assert _crossing(report) == []


def test_an_indented_paragraph_is_as_wide_as_asked() -> None:
    text = HelpPage("etprof")._fill_text("word " * 60, 40, "        ")
    lines = text.splitlines()
    assert all(line.startswith("        word") for line in lines)
    assert 36 <= max(map(len, lines)) <= 40


def test_sizes_are_those_of_executorchs_networks_unless_torchtune_defines_the_model(
    tmp_path: Path,
) -> None:
    (tmp_path / "p.json").write_text('{"num_tiles": 4}')
    config = tmp_path / "c.yaml"
    config.write_text("base: {model_class: llama3_2_vision, params: p.json}\n")
    assert plan_export(LlmRequest(config)).settings.get("base.model_class") == "llama3_2_vision"
    config.write_text("base: {model_class: llama3, params: p.json}\n")
    with pytest.raises(UsageError, match="num_tiles is not a parameter of ExecuTorch's networks"):
        plan_export(LlmRequest(config))


def test_every_class_of_operators_is_in_a_category() -> None:
    classes = [
        value for value in vars(backend).values() if isinstance(value, backend.OperatorClass)
    ]
    assert len(classes) > 20
    assert {entry.category for entry in classes} == set(backend.CATEGORIES)
    assert len({entry.finer for entry in classes}) == len(classes)


def test_a_search_writes_its_page(tmp_path: Path) -> None:
    page = _write_page(searched(), tmp_path)
    assert page == tmp_path / "optimize.html"
    assert '<h2 id="programs">' in page.read_text()


def test_what_was_decided_anew_stands_once_in_a_search_s_steps() -> None:
    """`first` and `second` spoil the outputs together; the second is worth more, and `idle` nothing."""

    def make(names: tuple[str, ...]) -> Trial:
        saved = {"first": 1, "second": 4, "good": 2}
        outside = 9 - sum(saved.get(name, 0) for name in names)
        return program(names, outside=outside, passed=not {"first", "second"} <= set(names))

    finished, _, best = search("idle good first second", make)
    assert best.rewrites == ("good", "second")
    names = [step.rewrite for step in finished.steps]
    assert sorted(names) == sorted(set(names)) == ["first", "good", "idle", "second"]
    assert {step.rewrite for step in finished.steps if step.kept} == {"good", "second"}


class AnsweringAdb:
    """Answers a launch as a device's shell does."""

    serial = "phone"

    def shell(self, script: str, **_: object) -> Completed:
        mark = re.search(r"printf '\\n([0-9a-f]{16})", script)
        assert mark is not None
        report = f"137\n4711\n11-29 20:00:00.000\n{'a' * 64} 12 ./output_0.bin\n"
        return Completed(("adb",), 0, f"said\n{mark[1]}\n{report}", "complained")


def test_what_a_launch_says_is_kept_apart_from_what_it_complains_of() -> None:
    finished = DeviceSession(AnsweringAdb(), "/data/etprof").launch(["runner"], 5.0)  # type: ignore[arg-type]
    assert (finished.stdout, finished.stderr) == ("said", "complained")
    assert (finished.exit_code, finished.process_id) == (-9, "4711")
    assert finished.files == {"output_0.bin": RemoteFile("a" * 64, 12)}


def test_the_sizes_that_would_fill_tiles_are_those_of_most_calls() -> None:
    """One large call and nine small ones, on tiles of 32 rows and 32 columns."""
    kernel = SimpleNamespace(by_sizes=[((100, 100, 64), 1), ((33, 30, 64), 9)])
    work = SimpleNamespace(macs=1000, computed=2000)
    tile = SimpleNamespace(rows=32, columns=32)
    use: Any = SimpleNamespace(kernel=kernel, work=work, tile=tile)
    assert _waste(use).endswith("; m 64, n 32 would fill them")
    assert _sizes(use) == "m 33, n 30, k 64"


@pytest.mark.parametrize(
    ("message", "kinds"),
    [
        ("Failed to create convolution 2d node 7 with code 2", ["Convolution2d"]),
        # What has the handle, where no kind is named as in the graph.
        ("Failed to create unheard-of node 7", ["Convolution2d", "Clamp"]),
        ("Failed to define tensor 5", ["Add"]),
        ("Failed to create convolution 2d node 9", []),
    ],
)
def test_the_node_that_xnnpack_refuses_is_found_by_number_and_kind(
    message: str, kinds: list[str]
) -> None:
    nodes = [
        DelegateNode(kind="Convolution2d", debug_handle=7, output=3),
        DelegateNode(kind="Clamp", debug_handle=7, output=4),
        DelegateNode(kind="Add", debug_handle=8, output=5),
    ]
    refused = XnnpackExporter().find_refused(message, nodes)
    assert [node.kind for node in refused] == kinds


def test_a_module_of_several_runs_is_one_row(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / name, replace(described(one(convolutions(us)), [
            traced("a", "stem", "aten.conv2d.default", delegate=0)], node("Conv2d", "a")),
            precision=name))
        for name, us in (("fp16", 10), ("fp32", 40))
    ]  # fmt: skip
    together = side_by_side(assess_runs([LoadedRun.load(folder) for folder in folders]))
    assert together is not None
    (section,) = [entry for entry in together.sections if entry.anchor == "run_modules"]
    (table,) = section.tables
    assert len(table.columns) == 3
    assert table.columns[0].name == "module"
    # One row, whose figures are those of either run.
    assert len(table.rows) == 1
