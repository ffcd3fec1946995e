"""More single changes of a line that went unnoticed: see test_drawn_changes.py."""

from __future__ import annotations

import json
import operator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from etprof.analysis.findings import finding, work
from etprof.analysis.findings.finding import Subject
from etprof.backends.kernel_names import tile_of
from etprof.base.text import kept_flags
from etprof.bench import prompt_work
from etprof.cli.follow_up import PROFILE_FLAGS
from etprof.export import operators
from etprof.export.changes import fallbacks
from etprof.history.gate import _reason_of_verdict
from etprof.optimize.optimizing import PROGRAM, Optimizer
from etprof.run import load
from etprof.run.manifest import LaunchRecord
from etprof.run.optimization import OptimizationStep
from etprof.tables import comparisons
from etprof.targets.local import LocalTarget
from etprof.views.terminal import _fitted


def test_the_only_operator_launch_of_an_old_run_is_number_0() -> None:
    split = {"experiment": "a", "purpose": "operators", "folder": "a"}
    number: Any = LaunchRecord._number_the_only_split
    assert number(split) == {**split, "block": 0}
    for other in ({**split, "block": 3}, {**split, "purpose": "timing"}):
        assert number(other) == other


@pytest.mark.parametrize(
    ("point", "low", "reaches"),
    [(0.2, None, True), (0.2, 0.2, True), (0.19, None, False), (0.3, 0.19, False)],
)
def test_a_share_is_reached_by_what_is_as_large(
    point: float, low: float | None, reaches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    interval = None if low is None else SimpleNamespace(low=low)
    monkeypatch.setattr(finding, "share_interval", lambda *_: interval)
    subject: Any = SimpleNamespace(insight=None, share_of=lambda _: point)
    details: list[Any] = [SimpleNamespace()]
    assert Subject.reaches(subject, details, 0.2) is reaches
    assert not Subject.reaches(subject, [], 0.0)


def test_flags_that_have_no_value_keep_none() -> None:
    command = ["profile", "m", "--warmup-steady", "x", "--threads", "2", "--cold-inputs", "y"]
    assert kept_flags(command, PROFILE_FLAGS) == (
        "--warmup-steady",
        "--threads",
        "2",
        "--cold-inputs",
    )


@pytest.mark.parametrize(
    ("instruction", "count", "taken"), [(2, 2, True), (1, 2, False), (2, 50, False)]
)
def test_of_a_call_that_failed_a_few_operators_are_at_fault(
    instruction: int, count: int, taken: bool
) -> None:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    nodes = [graph.call_function(operator.neg, (value,)) for _ in range(count)]
    delegate = SimpleNamespace(instruction=instruction, nodes=nodes)
    lowered: Any = SimpleNamespace(methods={"forward": SimpleNamespace(delegates=[delegate])})
    reason = "the call failed at instruction 2"
    assert fallbacks._INSTRUCTION.search(reason)
    error: Any = SimpleNamespace(reason=reason, method="forward")
    assert list(fallbacks._failed_delegate(error, lowered)) == (nodes if taken else [])


@pytest.mark.parametrize(
    ("change", "is_real", "reason"),
    [
        (0.2, True, "beyond 5 % and beyond chance"),
        (0.01, True, "worse since #7, and not clearly back"),
        (0.2, False, "worse since #7, and not clearly back"),
    ],
)
def test_a_standing_alarm_is_told_where_a_run_shows_nothing_of_its_own(
    change: float, is_real: bool, reason: str
) -> None:
    comparison: Any = SimpleNamespace(threshold=0.05, drift=None, is_standing=True, departed=(7,))
    assert _reason_of_verdict(comparison, "regression", change, is_real=is_real) == reason


@pytest.mark.parametrize(
    ("text", "is_number", "shown"),
    [("12345 ms", True, "12345 ms"), ("a b", False, "a b"), ("one two", False, "one\ntwo")],
)
def test_numbers_are_never_folded(text: str, is_number: bool, shown: str) -> None:
    column: Any = SimpleNamespace(column=SimpleNamespace(is_number=is_number))
    cell: Any = SimpleNamespace(text=text, style="")
    assert _fitted(cell, column, 3).plain == shown


@pytest.mark.parametrize(
    ("low", "high", "bits"), [(-8, 7, 4), (-7, 7, None), (-8, 8, None), (-128, 127, None)]
)
def test_what_is_held_in_int8_has_four_bits_by_its_limits(
    low: int, high: int, bits: int | None
) -> None:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    assert operators._bits(graph.call_function(dequantize, (value, 1.0, 0, low, high))) == bits
    assert operators._bits(graph.call_function(operator.add, (value, low, high))) is None


def dequantize(*_: object) -> None:
    """Bears the name."""


@pytest.mark.parametrize(
    ("modes", "offered"),
    [(("off", "sme2"), ("off", "sme2")), (("off",), ("auto",)), ((), ("auto",))],
)
def test_a_cpu_without_a_choice_is_left_to_the_runner(
    modes: tuple[str, ...], offered: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalTarget, "describe_cpu", lambda _: object())
    monkeypatch.setattr("etprof.targets.local.modes_of", lambda _: modes)
    assert LocalTarget().sme_modes() == offered


@pytest.mark.parametrize(
    ("count", "has_flow", "sizes", "is_asked"),
    [(2, True, (0, 8), True), (9, True, (8,), True), (1, True, (8,), False), (2, False, (8,), False), (2, True, (0,), False)],
)  # fmt: skip
def test_boundaries_are_those_of_several_calls_whose_data_is_known(
    count: int, has_flow: bool, sizes: tuple[int, ...], is_asked: bool
) -> None:
    report: Any = SimpleNamespace(
        delegates=[None] * count, has_data_flow=has_flow,
        operators=[SimpleNamespace(output_bytes=size) for size in sizes],
    )  # fmt: skip
    experiment = SimpleNamespace(program=SimpleNamespace(report=report))
    subject: Any = SimpleNamespace(insight=SimpleNamespace(experiment=experiment))
    assert (work._several_delegates(subject) is report) is is_asked


def test_a_tile_is_of_whole_steps() -> None:
    tile = tile_of("kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa", 512)
    assert tile is not None
    assert (tile.rows, tile.columns, tile.step) == (32, 32, 2)
    assert isinstance(tile.step, int)


@pytest.mark.parametrize(
    ("counted", "timed", "says"),
    [
        ("sme2", "sme2", None),
        ("sme2", "off", "sme2, not off"),
        ("sme2", None, "not one that is not known"),
    ],
)
def test_counts_of_another_mode_are_named(
    counted: str, timed: str | None, says: str | None
) -> None:
    trace: Any = SimpleNamespace(
        program=SimpleNamespace(computes_the_same=lambda _: True), threads=1, experiment=None,
        trace=SimpleNamespace(sme=SimpleNamespace(in_force=counted, svl_bits=512)),
    )  # fmt: skip
    launches: Any = SimpleNamespace(program=None, sme=timed, svl_bits=512, threads=1)
    mismatch = load._CountedTrace.find_mismatch(trace, launches, None)
    assert mismatch is None if says is None else says in str(mismatch)


def test_the_work_of_a_prompt_is_that_of_one_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(prompt_work, "tile_uses", lambda counted: asked.append(list(counted)))
    monkeypatch.setattr(prompt_work, "add_work", lambda _: SimpleNamespace(macs=7))
    counts = {name: SimpleNamespace(mode_in_force=mode) for name, mode in
              (("a", "off"), ("b", "sme2"), ("c", "sme2"))}  # fmt: skip
    analysis: Any = SimpleNamespace(counted_in_prefill=counts, prefilled_tokens=5)
    assert prompt_work.count_prompt_work(analysis) == prompt_work.PromptWork(5, 7)
    assert asked == [["b"]]


@pytest.mark.parametrize(
    ("snr_db", "equal_share", "shown"),
    [(50.0, 1.0, 40.0), (None, 1.0, None), (None, None, 40.0), (50.0, None, 40.0)],
)
def test_whole_numbers_are_held_to_no_ratio(
    snr_db: float | None, equal_share: float | None, shown: float | None
) -> None:
    (column,) = (column for column in comparisons.ACCURACY.columns if column.name == "least_snr_db")
    row = SimpleNamespace(snr_db=snr_db, equal_share=equal_share, least_snr_db=40.0)
    assert column.of is not None
    assert column.of(row) == shown


def test_what_a_search_left_out_is_noted_and_what_had_no_use_is_not(tmp_path: Path) -> None:
    manifest = {"model": "m", "backend": "xnnpack", "precision": "fp16"}
    path = tmp_path / f"{PROGRAM}.json"
    path.write_text(json.dumps({**manifest, "rewrites_left_out": {"earlier": "why"}}))
    steps = [
        OptimizationStep(rewrite="kept", kept=True, why="better"),
        OptimizationStep(rewrite="dropped", kept=False, why="worse"),
        OptimizationStep(rewrite="idle", kept=False, why="nothing to change", is_idle=True),
    ]
    optimizer: Any = SimpleNamespace(folder=tmp_path)
    Optimizer._note_left_out(optimizer, steps)
    assert json.loads(path.read_text())["rewrites_left_out"] == {
        "earlier": "why", "dropped": "`optimize` did not keep it: worse",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("is_there", "purpose", "is_read"),
    [(True, "kernels", True), (True, "timing", False), (False, "kernels", False)],
)
def test_what_no_launch_has_counted_is_no_evidence(
    is_there: bool,
    purpose: str,
    is_read: bool,
    tmp_path: Path,
) -> None:
    path = tmp_path / "x_kernels.json"
    if is_there:
        path.write_text("{}")
    launches: Any = SimpleNamespace(_launches={("a", "kernels"): None})
    reader: Any = load._RunReader._read_counted
    assert (reader(launches, "a", purpose, path, lambda _: "read", []) == "read") is is_read
