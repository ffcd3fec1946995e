"""What must hold of every report of a real run, computed independently of the analysis."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.findings.finding import required
from etprof.etdump.reader import load_etdump
from tests.known_etdumps import timed

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.run_analysis import ExperimentAnalysis


def raw_executions(path: Path) -> list[tuple[int, dict[str, int]]]:
    """Duration and leaf events of each steady execution, one event at a time."""
    dump = load_etdump(path)
    names = (*dump.names, "")
    executions = []
    leaves: dict[str, int] = defaultdict(int)
    for row in range(len(dump.profile.name_id)):
        if names[dump.blocks.name_id[dump.profile.block_index[row]]] != "Execute":
            continue
        name = names[dump.profile.name_id[row]]
        length = int(dump.profile.end_time[row]) - int(dump.profile.start_time[row])
        if name == "Method::execute":
            executions.append((length, leaves))
            leaves = defaultdict(int)
        elif dump.profile.delegate_debug_id_str_id[row] >= 0:
            leaves[names[dump.profile.delegate_debug_id_str_id[row]]] += length
        elif name.startswith("native_call_"):
            leaves[name] += length
    return executions


def raw_totals(path: Path, count: int) -> tuple[dict[str, int], int]:
    """Adds up the `count` steady executions that are nearest to the median of all."""
    executions = raw_executions(path)
    middle = statistics.median(length for length, _ in executions)
    near = sorted(executions, key=lambda execution: abs(execution[0] - middle))[:count]
    leaves: dict[str, int] = defaultdict(int)
    for _, inside in near:
        for name, length in inside.items():
            leaves[name] += length
    return leaves, sum(length for length, _ in near)


def check_split(experiment: ExperimentAnalysis) -> None:
    """Shares close within 0.1 %, and every operator's sum is that of the raw file."""
    split = experiment.split
    leaves, whole = raw_totals(experiment.etdump, split.executions)
    assert split.left_out.impossible == 0
    assert split.left_out.recorded == len(raw_executions(experiment.etdump))
    assert timed(split).execute.total_ns == whole
    assert sum(times.share for _, times in split.parts) == pytest.approx(1.0, abs=0.001)
    by_label: dict[str, float] = defaultdict(float)
    for row in split.rows:
        by_label[row.label] += timed(row).total_ns
    assert by_label == leaves
    assert split.unknown_names == ()


def check_untimed_split(experiment: ExperimentAnalysis) -> None:
    """Every operator of the raw file is there, and no time of any of them."""
    split, executions = experiment.split, raw_executions(experiment.etdump)
    assert split.times is None
    assert [row.times for row in split.rows] == [None] * len(split.rows)
    assert split.left_out.impossible == 0
    assert split.left_out.recorded == split.executions == len(executions)
    assert {row.label for row in split.rows} == {
        name for _, inside in executions for name in inside
    }
    assert split.unknown_names == ()


def check_comparison(comparison: Comparison) -> None:
    """The waterfall closes, or is withheld; each side's operators are aligned exactly once.

    A machine that is busy during some launches makes a split that does not agree with the latency.
    """
    sides = (comparison.baseline.experiment, comparison.candidate.experiment)
    waterfall = timed(comparison).waterfall
    if any(side.is_in_doubt for side in sides):
        assert waterfall is None
    else:
        assert abs(required(waterfall).residual_ns) < 1e-3
        assert abs(required(waterfall).steps[-1].delta_ns) < 1e-3
    check_alignment(comparison)


def check_alignment(comparison: Comparison) -> None:
    """Each side's operators are aligned exactly once."""
    pairs = [entry.aligned for entry in comparison.operators]
    before, after = comparison.baseline.experiment.split, comparison.candidate.experiment.split
    assert sorted(id(row) for p in pairs for row in p.before) == sorted(map(id, before.rows))
    assert sorted(id(row) for p in pairs for row in p.after) == sorted(map(id, after.rows))
