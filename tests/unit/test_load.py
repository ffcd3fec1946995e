"""Reading a run: each file once, everything of one program joined, analysis without files."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etprof.analysis import assessment
from etprof.analysis.assessment import assess_run, assess_runs
from etprof.analysis.compare.comparability import Side, find_differences
from etprof.analysis.findings.rules import evaluate_run
from etprof.analysis.insight import RunInsight, describe_run
from etprof.analysis.run_analysis import RunAnalysis, analyze_run
from etprof.cli import main
from etprof.etdump.reader import ETDump, LongETDump, open_etdump
from etprof.history.ingest import read_run_directory
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment as Planned
from etprof.measuring.plan import Settings, plan
from etprof.run import load
from etprof.run.load import LoadedLaunches, Run
from etprof.run.program import Program
from tests.hostile.seeds import add_result, kernel_trace
from tests.known_etdumps import timed
from tests.known_runs import OFF_OPS, Experiment, on_off_run, write_run
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

OPENED: list[str] = []
_WATCHED: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _WATCHED and str(arguments[0]).startswith(_WATCHED[0]):
        OPENED.append(str(arguments[0])[len(_WATCHED[0]) + 1 :])


sys.addaudithook(_note)


@contextmanager
def watched(folder: Path) -> Iterator[Counter[str]]:
    """Counts how often each file of `folder` is opened for reading."""
    count = Counter[str]()
    OPENED.clear()
    _WATCHED[:] = [str(folder)]
    try:
        yield count
    finally:
        _WATCHED.clear()
        count.update(OPENED)


@pytest.fixture(name="run")
def three_experiments(tmp_path: Path) -> Path:
    known = on_off_run()
    third = Experiment("android_sme1", OFF_OPS, sme="sme1", latency_us=[800.0] * 10)
    entries = [
        replace(entry, kernels=kernel_trace(entry.name, entry.ops))
        for entry in (*known.experiments, third)
    ]
    run = write_run(tmp_path / "run", replace(known, experiments=entries))
    for entry in entries:
        add_result(run / entry.name / f"known_{entry.name}_t1")
    return run


def test_analyze_opens_each_file_once_and_asks_the_rules_once(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T10: 17 times the manifest, 18 times one result, all rules twice."""
    asked: list[object] = []
    dumps: list[Path] = []

    def judge(*subjects: Any, **beside: Any) -> Any:  # noqa: ANN401 - as the rules take them
        asked.append(subjects)
        return evaluate_run(*subjects, **beside)

    def read(path: Path, **beside: Any) -> ETDump | LongETDump:  # noqa: ANN401 - as above
        dumps.append(path)
        return open_etdump(path, **beside)

    monkeypatch.setattr(assessment, "evaluate_run", judge)
    monkeypatch.setattr(load, "open_etdump", read)
    measured = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    with watched(run) as opened:
        assert main(["analyze", str(run), "--quiet"]) == 0
    found = {name: opened[name] for name in measured if not name.endswith(".etdump")}
    assert found == dict.fromkeys(found, 1)
    assert len(found) == len(measured) - 3
    assert len(dumps) == len(set(dumps)) == 3
    assert len(asked) == 1


def test_analysis_opens_nothing(run: Path) -> None:
    """T10: 16 modules of analysis read files."""
    loaded = Run.load(run)
    with watched(run.parent) as opened:
        found = assess_run(analyze_run(loaded))
        assert found.comparisons[0].times is not None
        assert found.tracer_costs
    assert not opened


def measured(folder: Path, *experiments: Planned, **more: Any) -> Path:  # noqa: ANN401
    """A run of these experiments on a simulated machine with SME2; its operators and its traces."""
    model = folder / "m.pte"
    model.write_bytes(b"program")
    capabilities = Capabilities(most_threads=more.pop("most_threads", None))
    measure(
        program=Program(name="m", label="m", model=model),
        target=SimTarget(RunSpec(capabilities=capabilities)),
        run=folder / "run",
        planned=plan(
            experiments,
            Settings(blocks=1, operator_iterations=1, kernels=more.pop("kernels", False)),
            SimTarget(RunSpec(capabilities=capabilities)),
        ),
        progress=lambda *_: None,
        **more,
    )
    return folder / "run"


def grades(run: Path, name: str) -> set[str]:
    """Grades of an experiment's operators; none of those of which nothing is known."""
    details = assess_run(analyze_run(Run.load(run))).insight.of(name).details
    return {str(detail.evidence.grade) for detail in details if detail.evidence.grade}


def told(run: Path, name: str) -> list[str]:
    return [
        each for each in analyze_run(Run.load(run)).notes if each.startswith(f"{name}: the ker")
    ]


ON = Planned(name="on", sme="sme2", iterations=2, warmup=0)
COUNTING = Planned(name="counting", sme="sme2", mode="kernels", iterations=2, warmup=0)


@pytest.mark.parametrize("asked", [1, 4])
def test_a_trace_of_the_same_program_and_mode_feeds_the_experiment(
    asked: int, tmp_path: Path
) -> None:
    """T3: a kernel_trace experiment was ignored; A-D8: so it was with fewer threads than asked."""
    planned = [each.model_copy(update={"threads": asked}) for each in (ON, COUNTING)]
    run = measured(tmp_path, *planned, ON.model_copy(update={"name": "off", "sme": "off"}),
                   most_threads=2)  # fmt: skip
    assert grades(run, "on") == {"A"}
    assert grades(run, "off") == set()
    assert not told(run, "on")


@pytest.mark.parametrize(
    "other",
    [
        {"threads": 2},
        {"sme": "sme1"},
        {"extra_arguments": ("--cpu-only",)},
        {"sme_vector_bits": 256},
    ],
)
def test_a_trace_of_something_else_does_not(other: dict[str, Any], tmp_path: Path) -> None:
    """T3: other threads, another mode; A-D8: other arguments; C1: another vector length."""
    run = measured(tmp_path, ON, COUNTING.model_copy(update=other))
    assert grades(run, "on") == {"B"}


def test_counts_of_several_vector_lengths_stand_side_by_side(tmp_path: Path) -> None:
    """C1: counts of different lengths were compared without a word."""
    lengths = (128, 512)
    planned = [
        ON.model_copy(update={"name": f"on_{bits}", "sme_vector_bits": bits}) for bits in lengths
    ]
    found = analyze_run(Run.load(measured(tmp_path, *planned, kernels=True)))
    assert {mode: each.svl_bits for mode, each in found.counted.items()} == {
        "sme2 512 bits": 512,
        "sme2 128 bits": 128,
    }
    sides = [Side(found, each, found.manifest) for each in found.experiments]
    (difference,) = find_differences(*sides)
    assert difference.field == "vector_length"
    assert (difference.baseline, difference.candidate) == ("128 bits", "512 bits")


def test_a_trace_of_another_method_is_nobodys(tmp_path: Path) -> None:
    """T3: it may be of a method that the run did not measure."""
    run = measured(tmp_path, ON, kernels=True)
    assert grades(run, "on") == {"A"}
    (path,) = run.glob("*/*_kernels.json")
    path.write_text(path.read_text().replace('"forward"', '"encode"'))
    assert grades(run, "on") == {"B"}


def test_counts_of_another_build_of_the_runner_are_told_and_prove_nothing(tmp_path: Path) -> None:
    """A-D8, B-D2: an experiment with a runner of its own got the installed one's counts, grade A."""
    runner = tmp_path / "runner"
    runner.write_bytes(b"another build")
    mine = ON.model_copy(update={"name": "mine", "runner": runner})
    for kernels in (None, True):
        folder = tmp_path / str(kernels)
        folder.mkdir()
        run = measured(folder, ON, mine, kernels=kernels)
        assert grades(run, "on") == {"A"}
        assert grades(run, "mine") == {"B"}
        (line,) = told(run, "mine")
        assert "another build" in line


def test_a_runner_that_counts_proves_what_it_runs_itself(tmp_path: Path) -> None:
    """A-D8: the identity is the runner's content; a target's named one counts for all of it."""
    runner = tmp_path / "runner"
    runner.write_bytes(b"another build")
    mine = ON.model_copy(update={"name": "mine", "runner": runner})
    counting = COUNTING.model_copy(update={"runner": runner})
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    run = measured(first, mine, counting, ON)
    assert grades(run, "mine") == {"A"}
    assert grades(run, "on") == {"B"}
    named = {"content": {"target": {"trace_runner": "etprof-runner-trace"}}}
    assert grades(measured(second, mine, kernels=True, config=named), "mine") == {"A"}


def test_a_trace_of_a_launch_that_failed_or_never_was_is_no_evidence(tmp_path: Path) -> None:
    """A-D3, A-D4: a file that lies where a trace would be counted as grade A."""
    run = measured(tmp_path, ON, COUNTING)
    (path,) = run.glob("*/*_kernels.json")
    assert grades(run, "on") == {"A"}
    for place in (run / "zz_t1_kernels.json", run / "on" / "m_on_t1_kernels.json"):
        place.write_bytes(path.read_bytes())
    path.unlink()
    assert grades(run, "on") == {"B"}


def test_a_damaged_trace_result_or_output_is_told_and_the_rest_reported(tmp_path: Path) -> None:
    """A-D16, I3: one damaged kernel trace made the whole run unreadable."""
    run = measured(tmp_path, ON, ON.model_copy(update={"name": "off", "sme": "off"}), kernels=True)
    for name, damage in (
        ("m_on_t1_kernels.json", b"{"), ("m_on_t1_result.json", b"["),
    ):  # fmt: skip
        (run / "on" / name).write_bytes(damage)
    assert main(["analyze", str(run), "--quiet"]) == 0
    loaded = Run.load(run)
    off, on = sorted(loaded.experiments, key=lambda each: each.name)
    assert (on.name, on.kernels, dict(on.outputs), len(on.problems)) == ("on", None, {}, 2)
    assert off.kernels is not None
    assert not off.problems
    notes = analyze_run(loaded).notes
    assert all(any(problem in note for note in notes) for problem in on.problems)


def test_a_damaged_etdump_costs_its_own_experiment_alone(tmp_path: Path) -> None:
    """I3, A-D16: one damaged ETDump ended the whole report, and failed all rows of a history."""
    run = measured(tmp_path, ON, ON.model_copy(update={"name": "off", "sme": "off"}))
    for etdump in (run / "off").glob("*.etdump"):
        etdump.write_bytes(etdump.read_bytes()[:100])
    assert main(["report", str(run)]) == 0
    loaded = Run.load(run)
    assert [each.name for each in loaded.experiments] == ["on"]
    (off,) = loaded.others
    assert str(off.damage) in off.problems
    assert any(str(off.damage) in note for note in analyze_run(loaded).notes)
    rows = {row.experiment: row for row in read_run_directory(run)}
    assert rows["on"].failure is None
    assert rows["on"].categories
    assert str(off.damage) in (rows["off"].failure or "")
    assert {row.status for row in rows.values()} == {"ok"}
    for etdump in run.glob("*/*.etdump"):
        etdump.write_bytes(b"none")
    for name in ("on", "off"):
        shutil.rmtree(run / name / f"m_{name}_t1_outputs")
    assert main(["report", str(run)]) == 4, "nothing is left to report"


@pytest.mark.parametrize("name", ["export.json", "delegation.json"])
def test_a_damaged_export_is_told_and_the_rest_reported(name: str, tmp_path: Path) -> None:
    """I3, A-D16: what the export said decided whether there was a report at all."""
    run = write_run(tmp_path / "r", on_off_run())
    (run / name).write_bytes(b"{")
    assert main(["report", str(run)]) == 0
    loaded = Run.load(run)
    assert len(loaded.experiments) == 2
    (problem,) = loaded.problems
    assert str(run / name) in problem
    assert problem in analyze_run(loaded).notes
    assert all(problem in (row.failure or "") for row in read_run_directory(run))


@pytest.mark.parametrize("keep", [0, 39])
def test_a_truncated_output_is_told_and_the_rest_reported(keep: int, tmp_path: Path) -> None:
    """B-D12, I3: one damaged output ended the whole report with exit code 4."""
    run = measured(tmp_path, ON, ON.model_copy(update={"name": "off", "sme": "off"}))
    output = run / "off" / "m_off_t1_outputs" / "output_0.bin"
    output.write_bytes(output.read_bytes()[:keep])
    assert main(["report", str(run)]) == 0
    found = assess_run(analyze_run(Run.load(run)))
    assert any(str(output) in note for note in found.notes)
    (comparison,) = found.comparisons
    assert comparison.outputs == ()
    states = {check.name: check.state for check in timed(comparison).validity.checks}
    assert states["equal outputs"] == "unknown"


@pytest.mark.parametrize("wanted", [True, False])
def test_the_reference_run_is_read_by_those_who_show_it(wanted: bool, tmp_path: Path) -> None:
    """A-D25: `compare`, bench and history read MobileNet's whole run for each side, unused."""
    places = [tmp_path / f"out_{model}" / "runs" for model in ("mine", "mobilenet_v2")]
    for place in places:
        place.mkdir(parents=True)
    mine, other = (
        write_run(place / "android", replace(on_off_run(), model=place.parent.name[4:]))
        for place in places
    )
    with watched(other) as opened:
        assert (Run.load(mine, with_reference=wanted).reference is not None) is wanted
    assert bool(opened) is wanted


@pytest.fixture(name="emulated")
def emulated_run_of_the_first_edition(tmp_path: Path) -> Path:
    """It was timed, and says in both of its documents that this is no performance."""
    return write_run(tmp_path / "e", replace(on_off_run(), platform="emulator", meaningful=False))


@pytest.mark.parametrize("lost", [None, "manifest.json", "metrics.json"])
def test_an_untimed_run_has_no_block_whichever_file_says_so(
    emulated: Path, lost: str | None
) -> None:
    """T8, A-D1: without metrics.json, every emulated time was shown."""
    if lost:
        (emulated / lost).unlink()
    found = Run.load(emulated)
    assert not found.is_timed
    assert not any(each.blocks for each in found.timed.values())


@pytest.mark.parametrize("lost", [None, "manifest.json", "metrics.json"])
def test_an_etdump_of_an_untimed_run_is_untimed_alone_too(emulated: Path, lost: str | None) -> None:
    """A-D1: `etprof analyze out/runs/emulator/x/x.etdump` showed all of its times."""
    etdump = next(emulated.glob("*/*.etdump"))
    if lost:
        (emulated / lost).unlink()
    assert not Run.load(etdump).is_timed
    beside = emulated / etdump.name
    etdump.rename(beside)
    assert not Run.load(beside).is_timed
    (emulated / "elsewhere" / "deeper" / "still").mkdir(parents=True)
    elsewhere = emulated / "elsewhere" / "deeper" / "still" / etdump.name
    beside.rename(elsewhere)
    (elsewhere.parent / "metrics.json").write_text("[1]")  # another program's
    assert Run.load(elsewhere).is_timed


def test_an_emulated_median_is_in_no_note(emulated: Path) -> None:
    """B-D8: an experiment that had no ETDump was told with its median."""
    next(emulated.glob("*/*.etdump")).unlink()
    notes = analyze_run(Run.load(emulated)).notes
    assert not [note for note in notes if "median" in note or "per-operator breakdown" in note]


def test_no_emulated_value_enters_a_history(emulated: Path) -> None:
    """B-D10: rows of emulated runs had medians, for exports and pages to show."""
    assert [run.metrics for run in read_run_directory(emulated)] == [[], []]


def test_several_runs_are_described_once_each_and_their_reference_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-D17: every run twice, and the reference again for each of them."""
    described: list[str] = []

    def describe(run: RunAnalysis) -> RunInsight:
        described.append(run.source.name)
        return describe_run(run)

    monkeypatch.setattr(assessment, "describe_run", describe)
    runs = [Run.load(write_run(tmp_path / name, on_off_run())) for name in ("a", "b", "beside")]
    found = assess_runs(runs[:2], reference=runs[2])
    assert [each.reference.source.name for each in found if each.reference] == ["beside"] * 2
    assert sorted(described) == ["a", "b", "beside"]


def test_an_etdump_alone_is_the_first_launch_of_its_experiment(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", on_off_run())
    file = run / "android_off" / "known_android_off_t1.etdump"
    (alone,) = Run.load(file).experiments
    assert (alone.name, [split.number for split in alone.splits]) == (file.stem, [0])
    within = {each.name: each for each in Run.load(run).experiments}["android_off"]
    assert [split.number for split in within.splits] == [0]


def test_without_outputs_the_first_inference_is_meant() -> None:
    assert LoadedLaunches("off").output_step == 1
    assert LoadedLaunches("off", steps={3: {}, 2: {}}).output_step == 2
