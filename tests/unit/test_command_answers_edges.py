"""Edges of commands: bounds of their flags, what they refuse, what they say and how they end."""

from __future__ import annotations

import argparse
import errno
import gc
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from etprof import cli, doctor
from etprof.base.errors import InputFileError, UsageError
from etprof.cli import bench, build_parser, calibrate, docs, main, profile, validate
from etprof.cli.crash_report import _format, _reason, _redacted, _without
from etprof.cli.export import _describe_options, _precision
from etprof.cli.follow_up import flags_of_last_profile, with_flags_of
from etprof.cli.history import _check_request
from etprof.cli.optimize import _measured_as, _sentences
from etprof.cli.report import _folder, _formats, load_thresholds
from etprof.statistics.calibration import BetweenRuns, Calibration, Estimate
from etprof.statistics.effect import Effect
from etprof.targets.policy import ReadinessCheck
from tests.known_runs import on_off_run, write_run
from tests.manifests import edit_manifest
from tests.measured_runs import MeasuredRun, scaled, write_measured

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY, LONG, SEED = 100_000, 1_000_000_000, 2**64 - 1
BOUNDS = {
    "profile --threads": (1, 1024), "profile --blocks": (1, MANY),
    "profile --operator-launches": (1, MANY), "profile --iterations": (1, LONG),
    "profile --warmup": (0, LONG), "profile --seed": (0, SEED), "profile --generate": (2, LONG),
    "profile --prompt-length": (1, 32_768), "optimize --threads": (1, 1024),
    "optimize --blocks": (1, MANY), "analyze --top": (1, SEED), "compare --top": (1, SEED),
    "numerics --memory": (1, 2**20), "numerics --taps": (1, SEED), "numerics --top": (1, SEED),
    "calibrate --threads": (1, 1024), "calibrate --runs": (1, 100),
    "calibrate --blocks": (2, MANY), "calibrate --pairs": (2, MANY),
    "calibrate --launches": (2, MANY), "import --threads": (1, 1024),
    "import --inferences": (1, LONG), "history list --limit": (1, 1_000_000),
    "dashboard --port": (0, 65_535), "dashboard --runs": (0, SEED),
}  # fmt: skip


def numeric_flags() -> dict[str, Any]:
    """The type of each flag that takes a whole number between bounds."""
    types: dict[str, Any] = {}
    waiting: list[tuple[str, argparse.ArgumentParser]] = [("", build_parser())]
    while waiting:
        name, parser = waiting.pop()
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += [(f"{name} {word}".strip(), sub) for word, sub in action.choices.items()]
            elif getattr(action.type, "__qualname__", "").startswith("whole_number."):
                types[f"{name} {action.option_strings[0]}"] = action.type
    return types


def test_a_flag_takes_its_least_and_its_largest_number_and_none_beyond() -> None:
    types = numeric_flags()
    assert types.keys() == BOUNDS.keys()
    for flag, (least, most) in BOUNDS.items():
        assert [types[flag](str(number)) for number in (least, most)] == [least, most], flag
        with pytest.raises(argparse.ArgumentTypeError, match=f"must be at most {most}, not"):
            types[flag](str(most + 1))
        with pytest.raises(argparse.ArgumentTypeError, match=f"must be at least {least}, not"):
            types[flag](str(least - 1))


def parsed(*line: object) -> argparse.Namespace:
    return build_parser(str(line[0])).parse_args([str(word) for word in line])


# How a process ends.


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (OSError(errno.ENOSPC, "full"), 7, "etprof: cannot use standard output: full\n"),
        (OSError(errno.EIO, "broken"), 7, "etprof: cannot use standard output: broken\n"),
        (
            OSError(errno.EMFILE, "too many"),
            5,
            "etprof: the system refused a call: too many; check limits and free memory\n",
        ),
        (
            OSError(errno.ENOSPC, "full", "a\nb"),
            4,
            "etprof: a\n  b: full; check the path and its permissions\n",
        ),
    ],
)
def test_what_the_system_refused_is_told_from_what_a_stream_did(
    error: OSError, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._report_os_error(error) == code
    assert capsys.readouterr().err == says


def test_a_missing_package_is_named_and_a_defect_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "end_unexpectedly", lambda *_: 70)
    missing = [ModuleNotFoundError("no", name=name) for name in ("nowhere.sub", "etprof.x", "json")]
    assert [cli._report_missing_package(error, []) for error in missing] == [3, 70, 70]
    assert cli._report_missing_package(ModuleNotFoundError("no"), []) == 70
    assert capsys.readouterr().err == (
        "etprof: this needs nowhere, which is not installed; `etprof doctor` says how to get it\n"
    )


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a process of etprof's own sets, set back afterwards."""
    before = gc.get_threshold()
    monkeypatch.setattr(cli, "provide_home", lambda: None)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize(
    ("argv", "threads"),
    [
        (["analyze", "run"], "1"),
        (["--debug", "compare"], "1"),
        (["profile", "net"], None),
        (["export", "--out", "report"], None),
        ([], None),
    ],
)
def test_commands_that_read_alone_compute_with_one_thread(
    argv: list[str], threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    before = gc.get_threshold()
    cli._prepare_process(argv)
    assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
    assert gc.get_threshold() == (20_000, *before[1:])


@pytest.mark.usefixtures("process")
def test_a_process_takes_the_words_behind_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["etprof", "docs", "nothing_like_it", "more"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("etprof: `etprof docs` cannot use more;")


def test_the_exit_code_of_a_signal_is_the_shells(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli._report_interruption(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "etprof: interrupted; finished work is kept\n"


def test_a_dash_before_a_path_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["validate", "-run"]) == 2
    assert "begins with a dash" not in capsys.readouterr().err
    (tmp_path / "-run").mkdir()
    assert main(["validate", "-run"]) == 2
    assert "a path that begins with a dash is ./-run" in capsys.readouterr().err


# What a crash report leaves out.


def test_a_long_traceback_keeps_its_ends() -> None:
    class LongError(Exception):
        """Says a lot."""

        def __str__(self) -> str:
            return "a" + "b" * 200_000 + "z"

    text = _format(LongError())
    left_out = int(text.partition("\n[")[2].partition(" letters left out]\n")[0])
    assert left_out == len(f"{LongError.__module__}.{LongError.__qualname__}: {LongError()}\n") - (
        200_000
    )
    assert text.endswith("z\n")
    assert len(text) == 200_000 + len(f"\n[{left_out} letters left out]\n")
    assert _reason(ValueError("a  b\n c")) == "ValueError: a b c"
    assert _reason(ValueError("y" * 200)) == f"ValueError: {'y' * 200}"
    assert len(_reason(ValueError("y" * 201))) == len("ValueError: ") + 200


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["profile", "a/b-1.pte"], ["profile", "a/b-1.pte"]),
        (["--prompt", "secret"], ["--prompt", "[left out]"]),
        (["--prompt=secret", "x"], ["--prompt=[left out]", "x"]),
        (["--out=dir", "a b"], ["--out=dir", "[left out]"]),
        (["--store", "--full", "x"], ["--store", "--full", "x"]),
        (["postgres://h/x"], ["[left out]"]),
        (["--x=postgres://h"], ["--x=[left out]"]),
    ],
)
def test_words_that_may_be_private_are_left_out_of_a_report(
    argv: list[str], shown: list[str]
) -> None:
    assert list(_redacted(argv)) == shown
    assert (
        _without("at --prompt=pw of pw", ["--prompt=pw"]) == "at --prompt=[left out] of [left out]"
    )
    assert _without("a token=abc&x", [""]) == "a [left out]&x"


# What comes next.


def set_command(run: Path, *command: str) -> None:
    """Says what has made a run."""
    edit_manifest(run, lambda document: document.update(command=command))


def test_the_newest_profile_says_how_to_measure(tmp_path: Path) -> None:
    commands = {"a": ["profile", "--threads", "1"], "b": ["profile", "--threads", "2"],
                "c": ["analyze", "--threads", "3"]}  # fmt: skip
    for age, (name, line) in enumerate(commands.items()):
        run = write_run(tmp_path / "runs" / name, on_off_run())
        set_command(run, "x", *line)
        os.utime(run / "manifest.json", (1000 + age, 1000 + age))
    program = tmp_path / "artifacts" / "net.pte"
    assert flags_of_last_profile(program) == ("--threads", "2")
    os.utime(tmp_path / "runs/a/manifest.json", (2000, 2000))
    assert flags_of_last_profile(program) == ("--threads", "1")


def test_a_command_of_another_model_s_kind_is_left_as_it_is() -> None:
    argv = ["profile", "x", "--threads", "2"]
    for said in ("`etprof profile`", "`etprof profile toy`", "`etprof export a.py`"):
        assert with_flags_of(said, argv) == said
    assert with_flags_of("`etprof profile a.py`", argv) == "`etprof profile a.py --threads 2`"
    assert with_flags_of("`etprof profile a.py`", ["docs"]) == "`etprof profile a.py`"


WRITTEN = "out/optimized.pte and its recipe are written"
COUNT = "to count the kernels of both again, here or with another --target"
SEARCH = {"is_complete": True, "program": "optimized.pte", "plain_program": "baseline.pte"}


@pytest.mark.parametrize(
    ("more", "is_timed", "lines"),
    [
        (
            {"gains": ()},
            True,
            [
                f"{WRITTEN}; these figures rank coverage, not speed; to time both, interleaved:",
                "  etprof profile out/baseline.pte --against out/optimized.pte --threads 2",
            ],
        ),
        (
            {"gains": (1,), "is_complete": False},
            False,
            [
                "the budget ended first; run the same command again to continue",
                f"{WRITTEN}; these times are valid for this target only; {COUNT}:",
                "  etprof profile out/baseline.pte --against out/optimized.pte --threads 2",
            ],
        ),
        (
            {"program": None},
            True,
            ["No program was written: no rewrite makes this program better"],
        ),
        (
            {"program": None, "is_complete": False},
            True,
            [
                "the budget ended first; run the same command again to continue",
                "No program was written: nothing better was found so far",
            ],
        ),
    ],
)
def test_a_search_says_what_it_wrote_and_what_to_do(
    more: dict[str, Any], is_timed: bool, lines: list[str]
) -> None:
    search = cast("Any", SimpleNamespace(**SEARCH | more))
    flags = ("--threads", "2")
    assert _sentences(search, Path("out"), flags, is_timed=is_timed) == lines


def test_a_search_is_measured_again_as_it_was(tmp_path: Path) -> None:
    asked = parsed("optimize", "net", "--threads", "2", "--target", "local")
    assert _measured_as(asked, tmp_path) == ("--target", "local", "--threads", "2")
    run = write_run(tmp_path / "runs" / "linux", on_off_run())
    for line, flags in (
        (["--threads", "3"], ("--threads", "3")),
        (["--threads", "3", "--target", "emulator"], ()),
    ):
        set_command(run, "etprof", "profile", "net", *line)
        assert _measured_as(parsed("optimize", "net"), tmp_path / "optimize_fp16") == flags


# Names, choices and requests.


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["net_fp16"], [""]),
        (["net_fp16", "net_fp16"], ["baseline", "candidate"]),
        (["net_x_fp16", "net_x_int8"], ["fp16", "int8"]),
        (["net_fp16", "net_fp16_split"], ["fp16", "fp16_split"]),
        (["before", "after"], ["before", "after"]),
        (["net", "net_b"], ["net", "net_b"]),
        ([f"net_{'y' * 40}a", f"net_{'y' * 40}b"], ["baseline", "candidate"]),
        ([f"net_{'y' * 39}a", f"net_{'y' * 39}b"], [f"{'y' * 39}a", f"{'y' * 39}b"]),
    ],
)
def test_programs_are_named_by_where_their_labels_part(labels: list[str], names: list[str]) -> None:
    assert profile.name_programs(labels) == names


def test_every_program_has_an_experiment_for_each_mode_and_length() -> None:
    target = cast("Any", SimpleNamespace(platform="emulator", sme_modes=lambda: ("sme2", "off")))
    named = list(profile._name_experiments(target, (128, 512), ("fp16", "int8")))
    assert [entry["name"] for entry in named] == [
        "emulator_sme2_128_fp16", "emulator_sme2_128_int8",
        "emulator_sme2_512_fp16", "emulator_sme2_512_int8",
        "emulator_off_fp16", "emulator_off_int8",
    ]  # fmt: skip
    assert [entry.get("sme_vector_bits") for entry in named] == [128, 128, 512, 512, None, None]
    assert [entry.get("program") for entry in named] == [None, "int8"] * 3
    (one, off) = profile._name_experiments(target, (256,), ("",))
    assert one == {"name": "emulator_sme2", "sme": "sme2", "sme_vector_bits": 256}
    assert off == {"name": "emulator_off", "sme": "off"}


def test_fewer_threads_are_told_where_they_were_faster(tmp_path: Path) -> None:
    def leave(name: str, factor: float, threads: int, **more: Any) -> None:  # noqa: ANN401
        folder = write_measured(tmp_path / name, MeasuredRun(blocks_us=scaled(factor), **more))
        path = folder / "metrics.json"
        document = json.loads(path.read_text())
        for experiment in document["experiments"].values():
            experiment["threads"] = threads
        path.write_text(json.dumps(document))

    leave("linux", 1.0, 4)
    leave("linux_3", 2.0, 1)
    leave("linux_2", 0.5, 4)
    leave("linux_1", 0.1, 1, program="d" * 64)
    assert profile.describe_faster_threads(tmp_path / "linux", 4) is None
    leave("linux_0", 0.5, 1)
    assert profile.describe_faster_threads(tmp_path / "linux", 4) == (
        f"1 thread was faster: 50.0 µs instead of 100 µs ({tmp_path / 'linux_0'})"
    )
    leave("linux_4", 0.25, 2)
    assert profile.describe_faster_threads(tmp_path / "linux", 4) == (
        f"2 threads were faster: 25.0 µs instead of 100 µs ({tmp_path / 'linux_4'})"
    )
    assert profile.describe_faster_threads(tmp_path / "linux", 1) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a.pte --dtype fp16", "--dtype is for a model's name; a.pte is already exported$"),
        ("a.pte --input 1x3", "--input is for .*; --inputs takes its files$"),
        ("a.pte --export", "--export is for a model's name"),
        ("a:fp16 --dtype int8", "--dtype has no effect: a:fp16 names its precision"),
        ("a --sme-vector-bits 128", "--sme-vector-bits is for --target emulator; leave it out"),
        ("a --instructions", "--instructions is for --target emulator; leave it out"),
        ("a --serial X", "--serial is for --target android; leave it out"),
        ("a.pte --against b:int8 --dtype fp16", None),
        ("a:fp16 --against b --dtype fp16", None),
        ("a --target emulator --sme-vector-bits 128 --instructions", None),
        ("a --target android --serial X", None),
    ],
)
def test_a_flag_of_profile_that_would_change_nothing_is_refused(
    line: str, reason: str | None
) -> None:
    arguments = parsed("profile", *line.split())
    arguments.model = arguments.name
    if reason is None:
        profile._refuse_flags_without_effect(arguments)
    else:
        with pytest.raises(UsageError, match=reason):
            profile._refuse_flags_without_effect(arguments)


@pytest.mark.parametrize(
    ("line", "precision"),
    [
        ("", "fp16"), ("--dtype fp32", "fp32"), ("--quantize", "int8"),
        ("--quantize int8 --dtype fp32", "int8"), ("--quantize int8 --dtype int8", "int8"),
        ("--quantize int8 --dtype fp16", None),
    ],
)  # fmt: skip
def test_what_is_quantised_starts_from_float32(line: str, precision: str | None) -> None:
    arguments = parsed("export", "net", *line.split())
    if precision is not None:
        assert _precision(arguments) == precision
    else:
        with pytest.raises(UsageError, match="starts from fp32; drop --dtype fp16"):
            _precision(arguments)


def test_a_check_asks_for_what_the_flags_say() -> None:
    check = _check_request(
        parsed("history", "check", "--threshold", "3", "--threshold", "load_ns=20",
               "--branch", "main", "--metric", "load_ns", "--run", "4", "--exact-work")
    )  # fmt: skip
    assert (check.threshold, dict(check.thresholds)) == (0.03, {"load_ns": 0.2})
    assert (check.runs, check.filters, check.metrics) == (("4",), {"branch": "main"}, ("load_ns",))
    assert (check.work, check.allows_first_run) == (True, False)


def test_options_that_differ_from_the_usual_are_named() -> None:
    manifest = SimpleNamespace(options={"weights": None, "per_op_mode": True, "trace": True})
    assert _describe_options(cast("Any", manifest)) == " with per-op-mode"
    assert _describe_options(cast("Any", SimpleNamespace(options={"channels_last": False}))) == ""


def test_reports_of_several_runs_have_a_folder_of_their_own(tmp_path: Path) -> None:
    etdump = tmp_path / "a.etdump"
    assert _folder(parsed("report", "a", "b")) == Path("etprof_report")
    assert _folder(parsed("report", "a", "b", "--out", "c")) == Path("c")
    assert _folder(parsed("report", etdump)) == tmp_path
    assert _folder(parsed("report", tmp_path)) == tmp_path
    assert _formats(" html,,md ") == ["html", "md"]
    with pytest.raises(UsageError, match="--format ,: give one or more of"):
        _formats(",")
    (tmp_path / "t.json").write_text('{"nothing": 1, "depthwise_share": 2}')
    with pytest.raises(UsageError, match=r"t\.json cannot be used: .*nothing: .*; the thresholds "):
        load_thresholds(tmp_path / "t.json")


# What is said.


def test_a_calibration_is_told_in_per_cent() -> None:
    unknown = "speedup 1.00× (no interval from 30 pairs)"
    effect = Effect(30, 1.001, None, None, 0.02, "no difference")
    of = Calibration(
        measured_pairs=30, pairs=12, noise=Estimate(0.01, 0.008, 0.013), smallest_effect=None,
        comparisons=2, false_alarms=1, most_false_alarms=0.975, overall=effect,
    )  # fmt: skip
    assert calibrate._describe(of) == [
        f"Measured against itself in 30 blocks: no difference within 2.0 %, {unknown}",
        "Noise of one block: 1.0 % (0.8 % … 1.3 %)",
        "False alarms with 12 blocks: 1 of 2, so at most 97.5 %",
        "In one run, 12 blocks find 8 times in 10: nothing up to 2×",
        "Between runs: not known; --runs 6 measures it",
    ]
    between = BetweenRuns(6, Estimate(0.02, 0.01, 0.05), Estimate(0.09, 0.05, 0.2))
    further = Calibration(**{**of.__dict__, "between_runs": between})
    assert calibrate._describe(further)[-2:] == [
        "Runs differ by: 2.0 % (1.0 % … 5.0 %), from 6 runs",
        "Of two separate runs, 8 times in 10: 9.0 % (5.0 % … 20.0 %)",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a.pte --precisions fp16", "--precisions is for --peaks"),
        ("a.pte --peaks", "leave out a.pte"),
        ("--peaks --store x", "--store is for a program"),
        ("--threads 1", "give a program"),
        ("a.pte --blocks 5 --pairs 6", "--blocks 5 is fewer than --pairs 6"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        calibrate.run(parsed("calibrate", *line.split()))


def test_a_matrix_says_how_each_run_went(capsys: pytest.CaptureFixture[str]) -> None:
    unit = SimpleNamespace(text="net on host")
    reporter = bench.BenchReporter(3)
    for outcome in (
        SimpleNamespace(unit=unit, errors=(), worker="", duration_s=0.0),
        SimpleNamespace(unit=unit, errors=(), worker="host:1", duration_s=12.34),
        SimpleNamespace(unit=unit, errors=("it broke", "again"), worker="", duration_s=1.0),
    ):
        reporter.finished(cast("Any", outcome))
    assert capsys.readouterr().err.splitlines() == [
        "[1/3] net on host: finished earlier",
        "[2/3] net on host: 12.3 s",
        "[3/3] net on host: failed: it broke",
    ]
    assert [bench._scheduler_address(text) for text in (None, "h:1", "tls://h:1")] == [
        None, "tcp://h:1", "tls://h:1",
    ]  # fmt: skip


PAGE = """# Findings

## F10 later

ten

## F2

two, see [b](#f2b) and [x](#nowhere)

### F2b

under two

## F2

## Not-so: a `title`

end
"""


def test_a_section_reaches_to_the_next_of_its_level(tmp_path: Path) -> None:
    page = tmp_path / "findings.md"
    page.write_text(PAGE.replace("## F2\n\n## Not", "## F9\n\n## Not"))
    assert docs._findings(page) == ("F2", "F2b", "F9")
    assert docs._findings(None) == ()
    assert docs._section(page, "F2B") == "### F2b\n\nunder two\n"
    assert docs._section(page, "f2") == (
        "## F2\n\ntwo, see [b](#f2b) and [x](#nowhere)\n\n### F2b\n\nunder two\n\n"
        "`etprof docs f2b` prints the section linked above.\n"
    )
    assert docs._section(page, "not-so-a-title") == "## Not-so: a `title`\n\nend\n"
    assert docs._section(page, "F3") is None
    assert docs._section(None, "F2") is None


def checks(*statuses: str) -> list[ReadinessCheck]:
    return [ReadinessCheck(f"part {n}", cast("Any", s), "x") for n, s in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "code", "headline", "order"),
    [
        (("ok", "note"), 0, "Models can be profiled here", "10"),
        (("ok", "missing", "note"), 3, "1 needed part missing", "120"),
        (("missing", "ok", "missing"), 3, "2 needed parts missing", "021"),
    ],
)
def test_what_is_missing_comes_first(
    statuses: tuple[str, ...], code: int, headline: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = []
    monkeypatch.setattr(doctor, "examine", lambda: checks(*statuses))
    module = cli.load_command("doctor")
    monkeypatch.setattr(module, "answer", lambda *line: answers.append(line))
    assert module.run(parsed("doctor")) == code
    ((_, document, brief),) = answers
    assert [record["part"] for record in document["findings"]] == [
        f"part {number}" for number in range(len(statuses))
    ]
    assert brief.headlines[0].text == headline
    assert "".join(row["part"][-1] for row in brief.table.records()) == order


def test_free_space_and_cmake_have_a_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, status in ((2 * 2**30, "ok"), (2 * 2**30 - 1, "note")):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert doctor._check_disk().status == status
    program = tmp_path / "cmake"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for version, status in (("3.27", "note"), ("3.28", "ok"), ("4.0", "ok"), ("2.99", "note"),
                            ("none", "note")):  # fmt: skip
        program.write_text(f"#!/bin/sh\necho cmake version {version}\n")
        program.chmod(0o755)
        assert doctor._check_cmake().status == status, version


def test_a_run_is_as_good_as_its_worst_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate._EXIT_CODES == {"ok": 0, "note": 0, "wrong": 6, "incomplete": 1, "damaged": 4}
    run = write_run(tmp_path / "run", on_off_run())
    (run / "metrics.json").write_text("{")
    assert main(["validate", str(run), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["verdict"] == "damaged"
    with pytest.raises(UsageError, match="give a run directory"):
        validate.run(parsed("validate"))
    with pytest.raises(InputFileError):
        cli.run_command_line(["analyze", str(tmp_path / "none")])
