"""Measuring: right requests, nothing mixed, nothing finished ever lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import OutputError, TargetError, UsageError
from etprof.base.files import hash_file
from etprof.measuring import pipeline
from etprof.measuring.journal import InterruptedRun
from etprof.measuring.pipeline import MeasuredRun, measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.measuring.resume import load_earlier
from etprof.run.directory import load_metrics, reserved
from etprof.run.load import Run
from etprof.run.program import Program
from etprof.run.validation import validate_run, worst_level
from tests.manifests import edit_manifest
from tests.world.sim_target import SimTarget
from tests.world.spec import plain

if TYPE_CHECKING:
    from etprof.targets import Target
    from etprof.targets.request import RunnerRequest

EXPERIMENTS = [
    Experiment(name="linux_sme2_on", sme="sme2", warmup=3),
    Experiment(name="linux_sme2_off", sme="off", warmup=3),
]
SETTINGS = Settings(operator_launches=1, blocks=4)


def run(
    tmp_path: Path,
    target: Target,
    experiments: list[Experiment],
    settings: Settings = SETTINGS,
    *,
    resume: bool = False,
    keep_going: bool = False,
) -> MeasuredRun:
    tmp_path.mkdir(exist_ok=True)
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    inputs = tuple(sorted(tmp_path.glob("*.bin")))
    program = Program(name="m", label="m_fp32", model=model, inputs=inputs)
    run_directory = tmp_path / "run"
    earlier = InterruptedRun()
    if resume:
        earlier = load_earlier(run_directory, program, target, experiments, settings)
    return measure(
        program=program,
        target=target,
        run=run_directory,
        planned=plan(experiments, settings, target),
        progress=lambda *_: None,
        earlier=earlier,
        keep_going=keep_going,
    )


def test_timing_has_no_tracer_and_the_split_has_one(tmp_path: Path) -> None:
    target = SimTarget(plain())
    run(tmp_path, target, EXPERIMENTS)
    timing, split = target.requests[:8], target.requests[8:]
    assert all(request.etdump is None and request.outputs is None for request in timing)
    assert [request.etdump is not None for request in split] == [True, True]
    assert sorted(request.sme for request in timing) == ["off"] * 4 + ["sme2"] * 4
    assert {request.warmup for request in target.requests} == {3}


def test_a_runner_without_event_tracer_is_timed_and_not_split(tmp_path: Path) -> None:
    target = SimTarget(plain(event_tracer=False))
    measured = run(tmp_path, target, EXPERIMENTS[:1])
    assert all(request.etdump is None for request in target.requests)
    assert measured.errors == []
    assert measured.notes[0].startswith("linux_sme2_on has no per-operator breakdown: ")
    # AND what it computes is asked for by a launch of its own
    assert [purpose for _, purpose, _ in measured.results][-1] == "outputs"


def test_what_the_export_says_comes_along(tmp_path: Path) -> None:
    # GIVEN a program with its export's descriptions beside it
    texts = {"delegation.json": "the report", "export.json": '{"model": "m", "backend": "xnnpack", '
             '"precision": "fp32"}'}  # fmt: skip
    (tmp_path / "m.pte.delegation.json").write_text(texts["delegation.json"])
    (tmp_path / "m.pte.json").write_text(texts["export.json"])
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    # THEN the run directory has copies, with their hashes in the manifest
    folder = tmp_path / "run"
    assert {name: (folder / name).read_text() for name in texts} == texts
    hashed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {n: hashed[n]["sha256"] for n in texts} == {n: hash_file(folder / n) for n in texts}


def test_reports_may_be_written_anew(tmp_path: Path) -> None:
    """T2: run, run --resume, validate said that report.html had changed, always."""
    folder = tmp_path / "run"
    reports = ("report.html", "analysis_summary.json", "linux_sme2_on/m_fp32_t1_ops_stats.csv")
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    for name in reports:
        (folder / name).write_text("first")
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], resume=True)
    for name in reports:
        (folder / name).write_text("second")
    assert worst_level(validate_run(folder)) != "damaged"
    # AND what was measured is still guarded: results, ETDump, log, metrics
    hashed = set(json.loads((folder / "manifest.json").read_text())["files"])
    assert not hashed & set(reports)
    etdump = next(folder.glob("*/*.etdump")).relative_to(folder).as_posix()
    stem = etdump.removesuffix(".etdump")
    own = (".etdump", ".log", "_result.json", "_outputs/output_0.bin")
    expected = {"metrics.json", *(f"{stem}{end}" for end in own)}
    assert expected <= hashed
    assert len(hashed - expected) == SETTINGS.blocks
    (folder / f"{stem}_b01_result.json").write_text("{}")
    assert worst_level(validate_run(folder)) == "damaged"


def test_links_in_a_circle_are_damage(tmp_path: Path) -> None:
    """S5: validate ended in a RuntimeError."""
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    log = next((tmp_path / "run").glob("*/*.log"))
    log.unlink()
    log.symlink_to(log.name)
    assert worst_level(validate_run(tmp_path / "run")) == "damaged"


def test_a_run_can_be_read_where_the_program_is_not(tmp_path: Path) -> None:
    # GIVEN a run whose program and its descriptions are gone, in another place
    report = {"schema_version": 1, "model": "m", "methods": {"forward": {}}}
    (tmp_path / "m.pte.delegation.json").write_text(json.dumps(report))
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    elsewhere = tmp_path / "elsewhere" / "run"
    elsewhere.parent.mkdir()
    (tmp_path / "run").rename(elsewhere)
    for path in tmp_path.glob("m.pte*"):
        path.unlink()
    # THEN nothing is missing
    assert Run.load(elsewhere).programs[0].report is not None


def test_raw_samples_of_every_block_are_kept(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    metrics = load_metrics(tmp_path / "run")
    assert metrics is not None
    experiment = metrics.experiments["linux_sme2_on"]
    assert [block.latency_ns[0] for block in experiment.blocks] == [1000, 1001, 1002, 1003]
    assert [len(block.latency_ns) for block in experiment.blocks] == [10] * 4


def test_files_have_the_names_of_the_contract(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    folder = tmp_path / "run" / "linux_sme2_on"
    stem = "m_fp32_linux_sme2_on_t1"
    assert {path.name for path in folder.iterdir()} == {
        f"{stem}.etdump",
        f"{stem}.log",
        f"{stem}_outputs",
        f"{stem}_result.json",
        *(f"{stem}_b0{block}_result.json" for block in range(4)),
    }


def test_a_failed_block_loses_no_other(tmp_path: Path) -> None:
    # GIVEN the second launch fails
    measured = run(tmp_path, SimTarget(plain(1)), EXPERIMENTS[:1])
    # THEN the other three blocks and the split are there, and the failure is told
    assert blocks(measured, "linux_sme2_on") == [0, 2, 3]
    assert measured.errors == ["linux_sme2_on, timing: launch 1 failed; try again"]
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert [launch["error"] for launch in manifest["launches"]] == [
        None, "launch 1 failed; try again", None, None, None,
    ]  # fmt: skip
    log = (tmp_path / "run/linux_sme2_on/m_fp32_linux_sme2_on_t1.log").read_text()
    assert "timing block 1: launch 1 failed; try again" in log


def test_one_experiment_may_fail_whole(tmp_path: Path) -> None:
    # GIVEN every launch of one experiment fails
    measured = run(tmp_path, SimTarget(plain(sme="off")), EXPERIMENTS)
    # THEN the other is complete
    assert blocks(measured, "linux_sme2_on") == [0, 1, 2, 3]
    assert blocks(measured, "linux_sme2_off") == []
    metrics = load_metrics(tmp_path / "run")
    assert metrics is not None
    assert list(metrics.experiments) == ["linux_sme2_on"]


def test_an_experiment_is_given_up_after_two_failures_in_a_row(tmp_path: Path) -> None:
    target = SimTarget(plain(*range(100)))
    with pytest.raises(TargetError, match="launch 0 failed; try again"):
        run(tmp_path, target, EXPERIMENTS)
    assert [request.sme for request in target.requests].count("off") == 2
    assert len(target.requests) == 4
    assert not (tmp_path / "run").exists()


def test_or_never_when_asked_to_keep_going(tmp_path: Path) -> None:
    target = SimTarget(plain(*range(100)))
    with pytest.raises(TargetError):
        run(tmp_path, target, EXPERIMENTS[:1], keep_going=True)
    assert len(target.requests) == 5


def test_a_resumed_run_does_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    # GIVEN a run in which two launches failed
    first = run(tmp_path, SimTarget(plain(1, 3)), EXPERIMENTS[:1])
    assert blocks(first, "linux_sme2_on") == [0, 2]
    # WHEN it is resumed
    target = SimTarget(plain())
    second = run(tmp_path, target, EXPERIMENTS[:1], resume=True)
    # THEN the missing blocks are run, and all are there
    assert [request.result.name[-16:] for request in target.requests] == [
        "_b01_result.json",
        "_b03_result.json",
    ]
    assert blocks(second, "linux_sme2_on") == [0, 1, 2, 3]
    assert second.errors == []
    metrics = load_metrics(tmp_path / "run")
    assert metrics is not None
    assert len(metrics.experiments["linux_sme2_on"].blocks) == 4


def test_a_resume_with_nothing_left_to_do_forgets_nothing(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    first = json.loads((tmp_path / "run/manifest.json").read_text())
    target = SimTarget(plain())
    run(tmp_path, target, EXPERIMENTS[:1], resume=True)
    second = json.loads((tmp_path / "run/manifest.json").read_text())
    assert target.requests == []
    for field in ("cpu", "runner", "launches"):
        assert second[field] == first[field]


def test_what_another_is_writing_is_left_alone(tmp_path: Path) -> None:
    """A-D11: a second --resume removed the first one's half-written files, then said: busy."""
    folder = tmp_path / "run"
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    half = folder / ".manifest.json.abc12345"
    half.write_text("half")
    with reserved(folder), pytest.raises(OutputError):
        run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], resume=True)
    assert half.exists()
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], resume=True)
    assert not half.exists()


def test_a_damaged_result_is_measured_again(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    (result,) = (tmp_path / "run").glob("*/*_b02_result.json")
    result.write_text(result.read_text()[:100])
    target = SimTarget(plain())
    run(tmp_path, target, EXPERIMENTS[:1], resume=True)
    assert [request.result for request in target.requests] == [result]


def test_a_run_of_something_else_is_not_resumed(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    changed = Settings(operator_launches=1, blocks=4, seed=7)
    with pytest.raises(UsageError) as caught:
        run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], changed, resume=True)
    assert str(caught.value) == (
        f"{tmp_path}/run cannot be resumed, it measured something else:\n"
        "  seed was 0, is 7\nStart a new run"
    )


class Phone(SimTarget):
    """Tells who it is."""

    def __init__(self, **identity: object) -> None:
        super().__init__(plain())
        self.identity = identity

    def describe(self) -> dict[str, object]:
        return self.identity


class Saying(SimTarget):
    """Its results say something else than they should, or nothing of it."""

    def __init__(self, **said: object) -> None:
        super().__init__(plain())
        self.said = said

    def result(
        self, request: RunnerRequest, mode: str, latencies: list[int], number: int
    ) -> dict[str, object]:
        return {**super().result(request, mode, latencies, number), **self.said}


def refusal(tmp_path: Path, target: SimTarget, *experiments: Experiment) -> list[str]:
    """What a continuation is refused for."""
    with pytest.raises(UsageError) as caught:
        run(tmp_path, target, list(experiments or EXPERIMENTS[:1]), resume=True)
    return str(caught.value).splitlines()[1:-1]


def test_a_run_is_not_resumed_with_other_inputs(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"1234")
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], resume=True)
    (tmp_path / "x.bin").write_bytes(b"5678")
    assert refusal(tmp_path, SimTarget(plain())) == [
        "  inputs: they have changed since, or are others"
    ]


def test_a_run_is_not_resumed_with_other_experiments_of_the_same_name(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    name = EXPERIMENTS[0].name
    changed = EXPERIMENTS[0].model_copy(
        update={"warmup": 7, "cpus": (1,), "runner": Path("/own/runner")}
    )
    assert refusal(tmp_path, SimTarget(plain()), changed) == [
        f"  experiment {name}: warmup was {EXPERIMENTS[0].warmup}, is 7",
        f"  experiment {name}: cpus was (), is (1,)",
        f"  experiment {name}: runner was None, is /own/runner",
    ]


def test_a_run_is_resumed_with_a_runner_of_its_own(tmp_path: Path) -> None:
    own = [EXPERIMENTS[0].model_copy(update={"runner": Path("/own/runner")})]
    run(tmp_path, SimTarget(plain(1)), own)
    assert blocks(run(tmp_path, SimTarget(plain()), own, resume=True), own[0].name) == [0, 1, 2, 3]


def test_a_run_is_not_resumed_on_another_platform_or_with_another_method(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    elsewhere = SimTarget(plain())
    elsewhere.platform = "mac"
    assert refusal(tmp_path, elsewhere) == ["  platform: was linux, is mac"]
    edit_manifest(tmp_path / "run", lambda document: document["model"].update(method="encode"))
    assert refusal(tmp_path, SimTarget(plain())) == ["  method: was encode, is forward"]


def test_a_run_is_not_resumed_on_another_device(tmp_path: Path) -> None:
    run(tmp_path, Phone(serial="3A021", model="P9"), EXPERIMENTS[:1])
    # By another way to the same device it is.
    again = run(tmp_path, Phone(serial="10.0.0.2:5555", model="P9"), EXPERIMENTS[:1], resume=True)
    assert again.errors == []
    run(tmp_path / "b", Phone(serial="3A021", model="P9"), EXPERIMENTS[:1])
    other = Phone(serial="4B000", model="P8")
    assert refusal(tmp_path / "b", other) == [
        "  target serial: was 3A021, is 4B000",
        "  target model: was P9, is P8",
    ]


def test_more_blocks_may_be_added_to_a_finished_run(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    more = run(
        tmp_path,
        SimTarget(plain()),
        EXPERIMENTS[:1],
        Settings(operator_launches=1, blocks=6),
        resume=True,
    )
    assert blocks(more, "linux_sme2_on") == [0, 1, 2, 3, 4, 5]


def test_precision_can_end_a_run_early(tmp_path: Path) -> None:
    # GIVEN latencies of 1000 + launch number ns: a spread of 1 %
    settings = Settings(operator_launches=1, blocks=50, target_half_width=0.01)
    measured = run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], settings)
    # THEN six blocks, the fewest with an interval, are enough
    assert blocks(measured, "linux_sme2_on") == [0, 1, 2, 3, 4, 5]
    assert measured.notes[:1] == ["stopped before block 7: every median is known within ±1 %"]


def test_an_experiment_that_is_given_up_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    """A-D14: one dead experiment made the others run all their blocks."""
    target = SimTarget(plain(sme="sme2"))
    settings = Settings(operator_launches=1, blocks=40, target_half_width=0.5)
    measured = run(tmp_path, target, EXPERIMENTS, settings)
    assert len(measured.of("linux_sme2_off", "timing")) < 40
    assert any(note.startswith("stopped before block") for note in measured.notes)


def test_a_spent_budget_ends_the_timing_but_not_the_split(tmp_path: Path) -> None:
    settings = Settings(operator_launches=1, blocks=9, budget_s=1e-9)
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], Settings(operator_launches=1, blocks=2))
    measured = run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1], settings, resume=True)
    assert measured.notes[:1] == ["stopped before block 1: the budget of 1e-09 s is spent"]
    assert len(measured.of("linux_sme2_on", "operators")) == 1


def test_experiments_that_are_not_timed_do_not_hold_up_the_stop(tmp_path: Path) -> None:
    """T7: with an experiment of kernels alone, `target_half_width` never stopped."""
    split = Experiment(name="split", mode="operators")
    settings = Settings(operator_launches=1, blocks=30, target_half_width=0.02)
    measured = run(tmp_path, SimTarget(plain()), [*EXPERIMENTS, split], settings)
    assert blocks(measured, "linux_sme2_on") == blocks(measured, "linux_sme2_off") == [*range(6)]


class Clock:
    """A clock that each launch moves on by a second."""

    def __init__(self, target: SimTarget) -> None:
        self.target = target

    def monotonic(self) -> float:
        return float(len(self.target.requests))


@pytest.mark.parametrize("budget_s", [0.5, 1.5, 2.5, 3.5])
def test_a_budget_cuts_no_block_in_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget_s: float
) -> None:
    """T7: the budget was looked at before each launch whose number a block's size divides."""
    target = SimTarget(plain())
    monkeypatch.setattr(pipeline, "time", Clock(target))
    split = Experiment(name="split", mode="operators")
    settings = Settings(operator_launches=1, blocks=10, budget_s=budget_s)
    measured = run(tmp_path, target, [*EXPERIMENTS, split], settings)
    done = [0] if budget_s < 2 else [0, 1]
    assert blocks(measured, "linux_sme2_on") == blocks(measured, "linux_sme2_off") == done


def test_times_from_a_trace_runner_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is timed with a trace runner, whose counters cost"):
        run(tmp_path, SimTarget(plain(only_counts=True)), EXPERIMENTS[:1])


def test_operators_that_a_trace_runner_timed_are_refused(tmp_path: Path) -> None:
    """R003: the split of a trace runner without its clock stood beside those of others."""
    splits = [Experiment(name="linux_sme2_on", sme="sme2", mode="operators")]
    with pytest.raises(TargetError, match="is timed with a trace runner, whose counters cost"):
        run(tmp_path, SimTarget(plain(only_counts=True)), splits)
    # AND the clock's own launches, which every target's own pair makes, go on
    assert run(tmp_path / "own", SimTarget(plain()), splits).errors == []


@pytest.mark.parametrize("sme", [{"in_force": "off"}, {"requested": "auto", "in_force": "sme2"}])
def test_an_answer_in_another_sme_mode_is_refused(tmp_path: Path, sme: dict[str, str]) -> None:
    """T11: what the runner was asked for, and what came of it, was read by nobody."""
    target = Saying(sme=sme)
    with pytest.raises(TargetError, match="asked for SME mode sme2, and the runner ran in"):
        run(tmp_path, target, EXPERIMENTS[:1])


def blocks(measured: MeasuredRun, experiment: str) -> list[int]:
    return sorted(
        block
        for name, purpose, block in measured.results
        if (name, purpose) == (experiment, "timing") and block is not None
    )


def test_the_manifest_says_who_what_where(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain()), EXPERIMENTS[:1])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["model"]["sha256"] == hash_file(tmp_path / "m.pte")
    assert manifest["platform"] == "linux"
    assert manifest["pins"]["executorch"] is not None
    assert manifest["settings"]["blocks"] == 4
    assert manifest["runner"]["build"]["compiler"] == "GNU"
    for name, listed in manifest["files"].items():
        assert hash_file(tmp_path / "run" / name) == listed["sha256"]


def test_a_runner_that_does_not_say_its_sme_mode_was_not_off(tmp_path: Path) -> None:
    """B-D6: no SME block in the result became "SME was off"."""
    run(tmp_path, Saying(sme=None), EXPERIMENTS)
    found = load_metrics(tmp_path / "run")
    assert found is not None
    assert {entry.sme for entry in found.experiments.values()} == {None}
