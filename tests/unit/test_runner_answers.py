"""What a runner's result says of itself, and who is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.cold_start import build_ledger
from etprof.base.atomic import write_json
from etprof.base.errors import InputFileError, TargetError
from etprof.base.records import read_record
from etprof.run.directory import kind_of
from etprof.run.load import Run as LoadedRun
from etprof.run.runner_result import RunnerResult, SmeState
from etprof.targets.local import LocalTarget
from etprof.targets.request import RunnerRequest
from tests.known_runs import analyze, on_off_run, write_run
from tests.world.results import result_document


@pytest.mark.parametrize(
    ("mode", "cpu", "shown"),
    [
        ("sme2", ["sme", "sme2"], []),
        ("off", ["sme"], ["sme"]),
        ("sme1", ["sme", "sme2"], ["sme", "sme2"]),
        ("sme1", [], ["sme"]),
    ],
)
def test_a_mode_that_its_own_proof_speaks_against_is_refused(
    mode: str, cpu: list[str], shown: list[str]
) -> None:
    """T11: the features that XNNPACK could see are the proof of the mode, and nobody read them."""
    document = {"requested": mode, "in_force": mode, "cpu_features": cpu, "shown_features": shown}
    with pytest.raises(ValidationError, match="cannot be in force"):
        SmeState.model_validate(document)


@pytest.mark.parametrize(
    ("mode", "shown"), [("sme2", ["sme", "sme2", "sme_f16f16"]), ("sme1", ["sme"]), ("off", [])]
)
def test_a_mode_that_was_shown_is_taken(mode: str, shown: list[str]) -> None:
    document = {"in_force": mode, "cpu_features": ["sme", "sme2", "sme_f16f16"]}
    assert SmeState.model_validate(document | {"shown_features": shown}).in_force == mode
    assert SmeState.model_validate({"in_force": mode}).shown_features is None


def test_fewer_threads_than_asked_for_are_told(tmp_path: Path) -> None:
    """T11: what was asked for stood beside what was given, and nobody compared."""
    folder = write_run(tmp_path / "r", on_off_run())
    (etdump,) = (folder / "android_off").glob("*.etdump")
    result = result_document(1000) | {"threads": {"requested": 8, "in_force": 4}}
    write_json(etdump.with_name(f"{etdump.stem}_result.json"), result)
    notes = analyze_run(LoadedRun.load(folder)).notes
    assert [n for n in notes if "asked" in n] == ["android_off: 8 threads asked for, 4 in force"]


def test_what_loading_takes_of_the_memory_is_in_the_ledger(tmp_path: Path) -> None:
    """T11: memory before the load was written and read by nobody."""
    off = analyze(tmp_path / "r", on_off_run()).timed["android_off"]
    memory = off.blocks[0].memory.model_copy(update={"rss_before_load_bytes": 2**19})
    blocks = [block.model_copy(update={"memory": memory}) for block in off.blocks]
    known = off.model_copy(update={"blocks": blocks})
    taken = {e.label: e for e in build_ledger(off, known, margin=0.02)}["Memory that loading takes"]
    assert (taken.unit, taken.baseline, taken.candidate) == ("bytes", None, 2**19)


def test_a_generation_of_an_older_runner_is_read(tmp_path: Path) -> None:
    """T11: what is gone from the result is no reason to refuse an old one."""
    document = result_document(1000) | {"sme": {"requested": "auto", "in_force": "off"}}
    document["generation"] = {
        "prompt_tokens": [1], "tokens": [1], "prefill_method": "p", "decode_method": "d",
        "prefilled_tokens": 1,
        "repetitions": [{
            "prefill_ns": 5, "time_to_first_token_ns": 6, "token_latency_ns": [],
            "sampling_ns": 1, "total_ns": 20,
        }],
    }  # fmt: skip
    path = tmp_path / "r.json"
    write_json(path, document)
    assert read_record(RunnerResult, path, way_out="run again").generation is not None


def launch(folder: Path, script: str) -> RunnerRequest:
    """A launch of a runner that the user has named, which is this script."""
    runner = folder / "runner"
    runner.write_text(f"#!/bin/sh\n{script}\n")
    runner.chmod(0o755)
    return RunnerRequest(model=folder / "m.pte", result=folder / "m_result.json", runner=runner)


def test_what_the_runner_printed_is_kept_of_every_launch(tmp_path: Path) -> None:
    """R150, R136: only the last line of a launch that failed was kept, as an error."""
    request = launch(tmp_path, "printf 'first\\n'; printf 'I ExecuTorch: \\033[2Jx\\n' >&2; exit 0")
    request.result.write_text("{}")
    with pytest.raises(InputFileError):
        LocalTarget().run(request)
    assert request.words.read_text() == "first\nI ExecuTorch: \\x1b[2Jx\n"
    assert request.words in request.written
    assert kind_of(f"on/{request.words.name}") == "log"


def test_what_is_kept_of_a_runners_words_is_bounded(tmp_path: Path) -> None:
    """R150: an XNNPACK log of a large model has megabytes; the end says why a launch failed."""
    request = launch(
        tmp_path, "yes a line | head -n 40000; echo etprof-runner: the end >&2; exit 5"
    )
    with pytest.raises(TargetError, match=r"^the end$"):
        LocalTarget().run(request)
    kept = request.words.read_text()
    assert len(kept) < 70_000
    assert kept.endswith("\netprof-runner: the end\n")


def test_a_silent_runner_leaves_no_file_of_words(tmp_path: Path) -> None:
    request = launch(tmp_path, "exit 5")
    with pytest.raises(TargetError):
        LocalTarget().run(request)
    assert not request.words.exists()


def test_who_failed_is_named_where_a_launcher_stands_before_the_runner(tmp_path: Path) -> None:
    """R070: `No such device` of a launcher was blamed on the runner, as was its farewell."""
    request = launch(tmp_path, "echo etprof-runner: cannot load >&2; exit 5")
    farewell = tmp_path / "farewell"
    farewell.write_text('#!/bin/sh\n"$@"; code=$?\necho bye >&2\nexit $code\n')
    farewell.chmod(0o755)
    with pytest.raises(TargetError, match=r"^cannot load$"):
        LocalTarget().run(replace(request, launcher=(str(farewell),)))
    with pytest.raises(TargetError, match=r"No such file.*\n?.*leave `launcher` out") as caught:
        LocalTarget().run(replace(request, launcher=("env", "/none")))
    assert "does not answer as etprof-runner" not in str(caught.value)


@pytest.mark.parametrize(
    "script", ["echo \"ERROR: unknown command line flag 'result'\" >&2; exit 1", "exit 0"]
)
def test_a_program_that_is_no_runner_of_ours_is_told(tmp_path: Path, script: str) -> None:
    """R070: executor_runner as `runner_path` ended in its own words, or in a missing file."""
    request = launch(tmp_path, script)
    with pytest.raises(TargetError, match="does not answer as etprof-runner does: name one that"):
        LocalTarget().run(request)
