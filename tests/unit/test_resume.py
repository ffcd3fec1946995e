"""Continuing a run: what is kept, what is measured again, what is no evidence, and who it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.base.errors import OutputError, TargetError, UsageError
from etprof.base.files import hash_file
from etprof.measuring import journal
from etprof.measuring.launching import Launcher
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Launch, Settings, plan
from etprof.measuring.resume import load_earlier
from etprof.run.directory import load_metrics
from etprof.run.manifest import GitState, Manifest, load_manifest
from etprof.run.program import Program
from etprof.run.validation import validate_run
from tests.first_edition import downgrade
from tests.unit.test_pipeline import run
from tests.world.sim_target import SimTarget

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etprof.run.runner_result import RunnerResult
    from etprof.targets.request import RunnerRequest

OFF = Experiment(name="off", sme="off", iterations=3, warmup=1)
ON = Experiment(name="on", sme="sme2", iterations=3, warmup=1)
SETTINGS = Settings(operator_launches=1, blocks=2, operator_iterations=3, kernels=False)
COUNTING = Settings(operator_launches=1, blocks=2, operator_iterations=3, kernels=True)


class Interrupted(SimTarget):
    """Is cut off, as by a signal, once a launch has written its files; or does as it is told."""

    def __init__(self, when: Callable[[RunnerRequest], bool]) -> None:
        super().__init__()
        self.when = when

    def run(self, request: RunnerRequest) -> RunnerResult:
        result = super().run(request)
        if self.when(request):
            raise KeyboardInterrupt
        return result


class Fails(Interrupted):
    """Fails once a launch has written its files, a log of its own among them."""

    def run(self, request: RunnerRequest) -> RunnerResult:
        try:
            return super().run(request)
        except KeyboardInterrupt:
            request.log.write_text("the device says why\n")
            msg = "the runner crashed when it closed its files; try again"
            raise TargetError(msg) from None


def levels(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in validate_run(folder):
        found.setdefault(each.level, []).append(each.text)
    return found


def manifest_of(folder: Path) -> Manifest:
    manifest = load_manifest(folder)
    assert manifest is not None
    return manifest


def cut_off(tmp_path: Path, settings: Settings = SETTINGS) -> Path:
    """A run of both experiments that was killed at the first launch that writes an ETDump."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Interrupted(lambda request: request.etdump is not None), [OFF, ON], settings)
    return tmp_path / "run"


@pytest.mark.parametrize(
    "place",
    [
        "on/m_fp32_on_t1_kernels.json",
        "on/zz_t1_kernels.json",
        "zz_t1_kernels.json",
        "e/y.etdump",
        "on/m_fp32_on_t1_outputs/output_9.bin",
    ],
)
def test_a_file_put_in_between_is_no_evidence(tmp_path: Path, place: str) -> None:
    """D4: whatever lay there when a resumed run ended was hashed, and so vouched for."""
    folder = cut_off(tmp_path)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_text("forged")
    run(tmp_path, SimTarget(), [OFF, ON], SETTINGS, resume=True)
    assert place not in manifest_of(folder).files
    if (folder / place).exists():
        assert any(text.startswith(place) for text in levels(folder)["damaged"])
    else:
        assert "damaged" not in levels(folder)


def test_what_a_cut_off_launch_left_goes_when_its_experiment_does_not_run(tmp_path: Path) -> None:
    """D4: nobody knows whether it is whole."""
    folder = cut_off(tmp_path, COUNTING)
    left = next(folder.glob("*/*.etdump"))
    other = ON if left.parent.name == OFF.name else OFF
    run(tmp_path, SimTarget(), [other], COUNTING, resume=True)
    assert not left.exists()
    assert "damaged" not in levels(folder)


def test_outputs_that_were_being_brought_go(tmp_path: Path) -> None:
    """A-D24: the folder that a killed etprof was copying a phone's outputs into stayed."""
    folder = cut_off(tmp_path)
    left = folder / "on" / ".m_fp32_on_t1_outputs.0123456789ab"
    left.mkdir(parents=True, exist_ok=True)
    (left / "output_0.bin").write_bytes(b"half")
    run(tmp_path, SimTarget(), [OFF, ON], SETTINGS, resume=True)
    assert not left.exists()


def test_a_failed_launch_leaves_its_log_and_nothing_else(tmp_path: Path) -> None:
    """D4: the ETDump and kernel trace of a launch that failed became evidence."""
    failing = Fails(lambda request: bool(request.kernel_trace or request.etdump))
    run(tmp_path, failing, [ON], COUNTING)
    folder = tmp_path / "run"
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {
        "manifest.json",
        "metrics.json",
        "m_fp32_on_t1.log",
        *(f"m_fp32_on_t1_b0{block}_result.json" for block in range(2)),
        *(f"m_fp32_on_t1{end}_result_logcat.txt" for end in ("", "_kernels")),
    }
    assert set(levels(folder)) <= {"ok", "note", "incomplete"}
    run(tmp_path, SimTarget(), [ON], COUNTING, resume=True)
    assert not levels(folder).get("damaged")
    assert not list(folder.rglob("*_logcat.txt"))


@pytest.mark.parametrize("name", ["delegation.json", "export.json"])
def test_an_edit_of_what_the_journal_wrote_is_told(tmp_path: Path, name: str) -> None:
    """D4: they were hashed when the run ended, not when they were written."""
    (tmp_path / "m.pte.delegation.json").write_text(
        '{"schema_version": 1, "model": "m", "methods": {}}'
    )
    (tmp_path / "m.pte.json").write_text('{"model": "m", "backend": "b", "precision": "fp32"}')
    place = tmp_path / "run" / name

    class Edits(SimTarget):
        def run(self, request: RunnerRequest) -> RunnerResult:
            if len(self.requests) == 2:
                place.write_text(place.read_text() + "\n")
            return super().run(request)

    run(tmp_path, Edits(), [ON], SETTINGS)
    assert [text.partition(" ")[0] for text in levels(tmp_path / "run")["damaged"]] == [name]


def test_a_run_stays_who_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: blocks of commit A became commit B's when the run was continued from B."""
    commits = [GitState(commit="a" * 40), GitState(commit="b" * 40), GitState(commit="b" * 40)]
    monkeypatch.setattr(journal, "read_git_state", lambda _: commits.pop(0))
    folder = cut_off(tmp_path)
    first = manifest_of(folder)
    monkeypatch.setattr("sys.argv", ["etprof", "run", "--resume"])
    monkeypatch.setattr(journal, "_installed_version", lambda name: f"another {name}")
    for _ in range(2):
        run(tmp_path, SimTarget(), [OFF, ON], SETTINGS, resume=True)
    last = manifest_of(folder)
    kept = ("run_id", "created_at", "git", "command", "pins", "target", "cpu", "runner")
    assert [getattr(last, each) for each in kept] == [getattr(first, each) for each in kept]
    assert [each.git and each.git.commit for each in last.resumptions] == ["b" * 40] * 2
    assert last.resumptions[0].command == ("etprof", "run", "--resume")
    assert last.resumptions[0].pins["torch"] == "another torch"
    assert sum("b" * 40 in text for text in levels(folder)["note"]) == 2


def test_resuming_one_experiment_keeps_the_others(tmp_path: Path) -> None:
    """D13: `--resume --only A` dropped B's launches, metrics and files."""
    run(tmp_path, SimTarget(), [OFF, ON], SETTINGS)
    folder = tmp_path / "run"
    before = manifest_of(folder)
    (folder / "off/m_fp32_off_t1.etdump").unlink()
    target = SimTarget()
    run(tmp_path, target, [OFF], SETTINGS, resume=True)
    assert [request.sme for request in target.requests] == ["off"]
    after = manifest_of(folder)
    assert after.experiments == before.experiments
    assert after.files.keys() == before.files.keys()
    assert [each for each in after.launches if each.experiment == "on"] == [
        each for each in before.launches if each.experiment == "on"
    ]
    metrics = load_metrics(folder)
    assert metrics is not None
    assert {n: len(each.blocks) for n, each in metrics.experiments.items()} == {"off": 2, "on": 2}
    assert not levels(folder).get("damaged")


def test_an_experiment_that_never_ran_is_told(tmp_path: Path) -> None:
    """D13: a run cut off before B, continued with A alone, was complete."""
    first = Interrupted(bool)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, first, [OFF, ON], SETTINGS)
    run(tmp_path, SimTarget(), [OFF], SETTINGS, resume=True)
    assert any(text.startswith("on ") for text in levels(tmp_path / "run")["incomplete"])


def test_a_changed_file_of_another_experiment_is_kept_and_told(tmp_path: Path) -> None:
    """D13: what is left alone is not vouched for anew."""
    run(tmp_path, SimTarget(), [OFF, ON], SETTINGS)
    changed = tmp_path / "run/on/m_fp32_on_t1_b00_result.json"
    changed.write_text(changed.read_text().replace("1", "2", 1))
    run(tmp_path, SimTarget(), [OFF], SETTINGS, resume=True)
    assert [text.partition(" ")[0] for text in levels(tmp_path / "run")["damaged"]] == [
        "on/m_fp32_on_t1_b00_result.json"
    ]


def test_two_do_not_continue_one_run(tmp_path: Path) -> None:
    """D11: the second deleted the first one's half-written files, then said it was busy."""
    folder = cut_off(tmp_path)

    program = Program(name="m", label="m_fp32", model=tmp_path / "m.pte")
    seen = load_earlier(folder, program, SimTarget(), [OFF, ON], SETTINGS)
    run(tmp_path, SimTarget(), [OFF, ON], SETTINGS, resume=True)
    with pytest.raises(OutputError, match="another etprof has measured into"):
        measure(
            program=program,
            target=SimTarget(),
            run=folder,
            planned=plan([OFF, ON], SETTINGS, SimTarget()),
            progress=lambda *_: None,
            earlier=seen,
        )
    assert not levels(folder).get("damaged")


def test_a_runner_that_is_built_anew_meanwhile_is_told(tmp_path: Path) -> None:
    """D23: its hash was kept by its path, so a change between launches was never seen."""
    runner = tmp_path / "own-runner"
    runner.write_bytes(b"the runner")

    class Rebuilt(SimTarget):
        def run(self, request: RunnerRequest) -> RunnerResult:
            result = super().run(request)
            new = runner.with_name("new")
            new.write_bytes(b"another runner")
            new.replace(runner)
            return result

    run(tmp_path, Rebuilt(), [ON.model_copy(update={"runner": runner})], SETTINGS)
    assert any("its runner changed" in text for text in levels(tmp_path / "run")["note"])


def test_other_weights_are_another_program(tmp_path: Path) -> None:
    """D23: a .ptd file had no identity, so a run was continued with other weights."""
    model, weights = tmp_path / "m.pte", tmp_path / "m.ptd"
    model.write_bytes(b"program")
    weights.write_bytes(b"weights")
    program = Program(name="m", label="m", model=model, data=weights)
    described = journal.describe_model(program)
    assert described.data is not None
    assert described.data.sha256 == hash_file(weights)
    target, folder = SimTarget(), tmp_path / "run"
    made = journal.Journal(
        run=folder, program=program, target=target, experiments=[ON], settings=SETTINGS
    )
    made.start()
    outcome = Launcher(program, target, folder, SETTINGS).launch(Launch(ON, "timing", 0))
    made.add(outcome)
    assert load_earlier(folder, program, target, [ON], SETTINGS).finished_count == 1
    weights.write_bytes(b"other weights")
    with pytest.raises(UsageError, match="weights"):
        load_earlier(folder, program, target, [ON], SETTINGS)


def test_a_run_of_etprof_0_1_is_continued(tmp_path: Path) -> None:
    """D5: it lists no file before its end, and bare hashes then."""
    folder = cut_off(tmp_path)
    downgrade(folder)
    document = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(document | {"files": {}}))
    target = SimTarget()
    run(tmp_path, target, [OFF, ON], SETTINGS, resume=True)
    assert len(target.requests) == 2
    assert not levels(folder).get("damaged")


def test_a_launch_gives_every_target_raw_inputs(tmp_path: Path) -> None:
    """C8: the runner reads no `.npy` files; the record of the launch names what was asked for."""
    saved = tmp_path / "i.npy"
    np.save(saved, np.ones((2, 3), "<f4"))
    (tmp_path / "m.pte").write_bytes(b"program")
    given: list[RunnerRequest] = []

    class Listening(SimTarget):
        def run(self, request: RunnerRequest) -> RunnerResult:
            assert request.inputs[0].read_bytes() == np.ones(6, "<f4").tobytes()
            given.append(request)
            return super().run(request)

    program = Program(name="m", label="m", model=tmp_path / "m.pte", inputs=(saved,))
    outcome = Launcher(program, Listening(), tmp_path / "run", SETTINGS).launch(
        Launch(ON, "timing", 0)
    )
    assert outcome.error is None
    assert given[0].shapes == ("float32:2x3",)
    assert f"--input={saved}" in outcome.record.asked
