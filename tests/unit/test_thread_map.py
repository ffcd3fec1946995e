"""The thread map names the best point and where SME2 stops winning."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from etprof.analysis.run_analysis import ExperimentAnalysis, Latency, analyze_run
from etprof.analysis.split.thread_map import build_thread_map
from etprof.run.directory import ExperimentMetrics
from etprof.run.load import LoadedExperiment, Run
from etprof.statistics.summary import BlockedMedian, summarise
from etprof.tables.measurement import thread_tables
from tests.known_etdumps import runner_etdump

# Off scales with threads, SME2 does not: its unit is shared.
TRUTH = {("off", 1): 300, ("off", 2): 150, ("off", 4): 75, ("sme2", 1): 100, ("sme2", 2): 90,
         ("sme2", 4): 95}  # fmt: skip


def experiments(folder: Path, truth: dict[tuple[str, int], int]) -> list[ExperimentAnalysis]:
    (folder / "x.etdump").write_bytes(runner_etdump())
    (template,) = analyze_run(Run.load(folder / "x.etdump")).experiments
    return [
        replace(template, loaded=loaded(template, sme, threads), latency=latency(ns))
        for (sme, threads), ns in truth.items()
    ]


def loaded(template: ExperimentAnalysis, sme: str, threads: int) -> LoadedExperiment:
    metrics = ExperimentMetrics(sme=sme, threads=threads, blocks=[])
    return replace(template.loaded, name=f"{sme}_t{threads}", metrics=metrics)


def latency(median_ns: int) -> Latency:
    blocks = tuple(float(median_ns + offset) for offset in (0, 1, -1, 0, 1, -1))
    steady = BlockedMedian(float(median_ns), None, blocks)
    return Latency(steady, steady, steady, summarise(blocks), None, None, 0)


def test_best_point_and_crossover(tmp_path: Path) -> None:
    found = build_thread_map(experiments(tmp_path, TRUTH))
    assert found is not None
    assert (found.best.sme, found.best.threads) == ("off", 4)
    assert found.crossover_threads == 4
    assert {threads: effect.verdict for threads, effect in found.effects.items()} == {
        1: "faster",
        2: "faster",
        4: "slower",
    }
    _, table = thread_tables(experiments(tmp_path, TRUTH))
    assert table.note == "best: 4 threads, SME off; from 4 threads SME off is faster than SME2"
    best = [(row["sme"], row["threads"]) for row in table.records() if row["is_best"]]
    assert best == [("off", 4)]


def test_two_experiments_of_one_mode_and_thread_count_are_not_added_up(tmp_path: Path) -> None:
    """B-D13e's mending did: 38.6 and 37.9 µs stood as 76.5 µs in the matrix."""
    found = experiments(tmp_path, TRUTH)
    slower = replace(found[0], latency=latency(10 * TRUTH["off", 1]))
    matrix, _ = thread_tables([*found, slower])
    assert matrix.title
    shown = {row["sme"]: row["median_ns_1"] for row in matrix.records()}
    assert shown["off"] == TRUTH["off", 1]


def test_no_crossover_where_sme2_always_wins(tmp_path: Path) -> None:
    truth = {key: ns for key, ns in TRUTH.items() if key[1] < 4}
    found = build_thread_map(experiments(tmp_path, truth))
    assert found is not None
    assert found.crossover_threads is None
    _, table = thread_tables(experiments(tmp_path, truth))
    assert table.note == "best: 2 threads, SME2"


def test_one_thread_count_is_no_map(tmp_path: Path) -> None:
    truth = {key: ns for key, ns in TRUTH.items() if key[1] == 1}
    assert build_thread_map(experiments(tmp_path, truth)) is None
