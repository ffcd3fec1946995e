"""Further single changes that went unnoticed, at edges and in units: see test_drawn_changes.py."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from etprof.analysis.split.work import _depth
from etprof.base.errors import OutputError
from etprof.base.text import clean
from etprof.cli import main
from etprof.cli.models import _rows
from etprof.dashboard import export
from etprof.dashboard.chart import choose_points
from etprof.etrecord.archive import _find_problem
from etprof.export import lowering
from etprof.export.quality.reading import generate
from etprof.history import gate
from etprof.history.schema import Metric
from etprof.model_registry.eager_model import ExportMethod
from etprof.model_registry.input_spec import parse_input
from etprof.run.accuracy import FLOORS, judge_lowering, reachable_floors
from etprof.run.directory import _walk
from etprof.statistics.effect import is_balanced
from etprof.statistics.launch_ratio import flipped_intervals
from etprof.statistics.likeness import Parity
from etprof.statistics.states import find_states
from etprof.views.charts import _change_shade
from etprof.views.formats.chrome import _counter_events
from etprof.views.trace import Counter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.history.store import Store


def test_a_part_is_encrypted_by_the_first_bit_alone() -> None:
    part = zipfile.ZipInfo("a.json")
    problems = []
    for bits in (0, 1, 2, 3):
        part.flag_bits = bits
        problems.append(_find_problem(part))
    assert problems == [None, "is encrypted", None, "is encrypted"]


def test_a_models_own_figures_stand_in_its_first_row() -> None:
    method = {"name": "forward", "inputs": [], "macs": 1}
    rows = _rows({"name": "net", "parameters": 7, "methods": [method, {**method, "name": "two"}]})
    assert [(row["model"], row["parameters"]) for row in rows] == [("net", 7), ("", None)]


def test_a_counter_of_chrome_is_in_microseconds() -> None:
    (event,) = _counter_events(Counter("memory", "bytes", ((5_000, 1.0),)), 3)
    assert (event["ts"], event["args"]) == (5, {"bytes": 1.0})


def test_tokens_are_generated_after_the_prompt() -> None:
    scores = torch.eye(9).roll(1, 1)  # after each token the next one
    assert generate(lambda token, _: scores[token], [1, 5], 3) == [6, 7, 8]


@dataclass(frozen=True)
class _Series:
    group: str
    is_worse: bool
    together: int = 0


@pytest.mark.parametrize(("worse", "together"), [(3, 0), (4, 4)])
def test_more_than_half_of_a_device_is_one_cause(
    monkeypatch: pytest.MonkeyPatch, worse: int, together: int
) -> None:
    monkeypatch.setattr(gate, "_is_worse_alone", lambda series: series.is_worse)
    series = [_Series("device", is_worse=index < worse) for index in range(6)]
    marked: Sequence[Any] = gate._mark_common_causes(cast("Any", series))
    assert [entry.together for entry in marked] == [together] * worse + [0] * (6 - worse)


def test_a_site_replaces_no_folder_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_: object, folder: Path, *__: object) -> tuple[int, int, int]:
        (folder / export.MARKER).write_text("")
        return (1, 1, 1)

    monkeypatch.setattr(export, "_write_site", write)
    store = cast("Store", None)
    # Its parents are made, and it may be replaced.
    for _ in range(2):
        site = export.export_site(store, tmp_path / "of" / "a team")
        assert site.index == tmp_path / "of" / "a team" / "index.html"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("three years")
    with pytest.raises(OutputError, match="is not an exported dashboard"):
        export.export_site(store, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "three years"


def test_an_order_is_balanced_within_two_deviations() -> None:
    """Of 20 tosses of a coin: 10 and 2 times the root of 5."""
    assert [first for first in range(21) if is_balanced(first, 20)] == list(range(6, 15))


@pytest.mark.parametrize(
    ("before", "after", "shade"),
    [(100, 104, "same0"), (100, 106, "added1"), (106, 100, "saved1"), (100, 150, "added2"), (0, 0, "same0")],
)  # fmt: skip
def test_a_shade_is_of_the_difference(before: float, after: float, shade: str) -> None:
    assert _change_shade(before, after) == shade


def test_no_more_is_asked_of_halves_than_the_usual() -> None:
    usual = FLOORS["fp16"]
    cost = Parity(
        index=0, identical=False, max_abs=0.0, max_rel=0.0, mse=0.0, snr_db=200.0, cosine=1.0,
        top1=1.0, clear_top1=1.0, nonfinite_differences=0,
    )  # fmt: skip
    assert reachable_floors(usual, "fp16", cost).snr_db == usual.snr_db


def test_a_precision_without_threshold_says_so_and_where() -> None:
    verdict = judge_lowering([], "int3", {}, "here")
    assert (verdict.where, verdict.reason) == ("here", "no threshold is known for precision int3")


def test_as_many_points_as_fit_are_all_drawn() -> None:
    # A line of three straight points in four: only a full chart keeps all of them.
    assert choose_points([0.0, 0.0, 5.0, 0.0], 4) == [0, 1, 2, 3]


def test_a_name_as_long_as_its_limit_is_not_cut() -> None:
    assert clean("a\n", 3) == "a\\n"


def test_a_value_of_the_upper_state_is_moved_to_the_lower() -> None:
    low, high = [0.0, 0.001, 0.002], [0.3, 0.301, 0.302]
    logs = [value for pair in zip(low * 3, high * 3, strict=True) for value in pair]
    states = find_states(logs)
    assert states is not None
    assert max(map(abs, states.without_states(logs))) < 0.01


def test_folders_in_folders_are_read_where_outputs_are(tmp_path: Path) -> None:
    names = ["a.json", "on/b.json", "on/m_outputs/output_0.bin", "on/notes/c.json"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert {path.relative_to(tmp_path).as_posix() for path in _walk(tmp_path, 2)} == {*names[:3]}


def test_a_packing_without_sizes_has_no_depth() -> None:
    assert _depth("kai_run_lhs_pack_x16p2vlx2_x16_sme", ()) == 0


def test_one_tap_may_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numerics", "nobody_has_this_model", "--taps", "1"]) == 2
    assert "--taps" not in capsys.readouterr().err
    assert main(["numerics", "nobody_has_this_model", "--taps", "0"]) == 2
    assert "argument --taps: must be at least 1, not 0" in capsys.readouterr().err


def test_pairs_that_counted_nothing_have_no_ratio() -> None:
    """Nothing over nothing is no number, and sorts after all of them."""
    baseline = np.asarray([0.0] * 4 + [2.0] * 4)
    for interval in flipped_intervals(baseline, baseline / 2, [0.95]):
        assert interval is not None
        assert math.isfinite(interval.low + interval.high)


class Stored(nn.Module):
    """A transposed table, and a kernel that a sum reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Buffer(torch.randn(4, 3).T)
        self.kernel = nn.Parameter(torch.randn(2, 1, 2, 2), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = nn.functional.conv2d(x, self.kernel)
        return image * self.kernel.sum() + self.table.sum()


def test_tables_are_stored_in_order_and_a_kernel_is_copied_for_convolutions_alone() -> None:
    module = Stored().eval()
    assert not module.table.is_contiguous()
    program = lowering.trace("forward", ExportMethod(module, (torch.randn(1, 1, 4, 4),)))
    assert {name: value.is_contiguous() for name, value in program.state_dict.items()} == {
        "table": True, "kernel": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "verdict"), [(102.0, "unchanged"), (98.0, "unchanged"), (102.1, "regression")]
)
def test_a_size_of_just_its_threshold_more_or_less_is_unchanged(value: float, verdict: str) -> None:
    """102 of 100 is 0.020000000000000018 more as a float, and was beyond 2 %."""
    size = Metric(name="pte_bytes", unit="bytes", higher_is_better=False, value=value, count=3)
    (judged,) = gate.judge_all([gate.MetricComparison(size, (), 100.0, 0.02)])
    assert judged.verdict == verdict


@pytest.mark.parametrize(("dtype", "largest"), [("uint8", 255), ("int8", 127)])
def test_drawn_integers_reach_the_largest_of_their_type(dtype: str, largest: int) -> None:
    torch.manual_seed(0)
    assert int(parse_input(f"{dtype}:9000").draw(300).max()) == largest
