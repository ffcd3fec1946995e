"""The command line itself: wrong words and hostile surroundings end in one line and a code."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import Mock

import pytest

from etprof import cli
from etprof.base.errors import UsageError
from etprof.base.process import Completed, run_command
from etprof.cli import COMMANDS, build_parser, main
from etprof.cli.parser import CommandParser
from etprof.run.directory import reserved, set_aside

ELSEWHERE = "linux" if sys.platform == "darwin" else "mac"
WRONG = {
    "profil": "invalid choice: 'profil' (choose from profile, ",
    "profil x": "completion); did you mean 'profile'? see `etprof --help`",
    "export toy_cnn --jsn": "`etprof export` cannot use --jsn; did you mean '--json'? see `etprof export --help`",
    "history check --stre=x": "cannot use --stre=x; did you mean '--store'? see `etprof history",
    "profile toy_cnn --treads 1": "cannot use --treads 1; did you mean '--threads'? see `etprof",
    "models extra": "`etprof models` cannot use extra; see `etprof models --help`",
    "profile": "give one model, as in `etprof profile toy_cnn`",
    "profile ToyCNN": "no model is called 'ToyCNN'; did you mean 'toy_cnn'? known: decoder, ",
    "profile net.pt": "no model is called 'net.pt'; a model's file ends in .py or .pt2 (torch.export.save); weights are for --weights, beside the model; known: ",
    "profile x.pte --dtype fp32": "--dtype is for a model's name; x.pte is already exported",
    "profile x.pte --export": "--export is for a model's name; x.pte is already exported",
    "profile toy_cnn --runner r": "--runner: there is no runner at r; leave it out: the target has its own",
    "profile x.pte --seed -1": "argument --seed: must be at least 0, not -1",
    "profile x.pte --threads 1025": "argument --threads: must be at most 1024, not 1025",
    "profile x.pte --blocks 100001": "argument --blocks: must be at most 100000, not 100001",
    f"profile x.pte --blocks {'9' * 9999}": "argument --blocks: must be at most 100000, not ",
    "profile x.pte --min-seconds inf": "argument --min-seconds: must be at most 2592000 s, not inf",
    "profile x.pte --timeout 1e300": "argument --timeout: must be at most 2592000 s, not 1e300",
    "profile x.pte --generate 10000000000": "argument --generate: must be at most 1000000000, not",
    "dashboard --port 65536": "argument --port: must be at most 65535, not 65536",
    "profile x.pte --min-seconds nan": "argument --min-seconds: must be above 0 s, not nan",
    "analyze x --top 0": "argument --top: must be at least 1, not 0",
    "compare a b --margin -1": "argument --margin: must be a fraction above 0 and below 1, such as",
    "compare a b --margin 2": "argument --margin: must be a fraction above 0 and below 1, such as",
    "compare a b --margin nan": "argument --margin: must be a fraction above 0 and below 1, such as",
    "calibrate x.pte --pairs 0": "argument --pairs: must be at least 2, not 0",
    f"profile toy_cnn --target {ELSEWHERE}": f"--target is '{ELSEWHERE}', but this machine is ",
    "profile toy_cnn --backend none": "argument --backend: invalid choice: 'none' (choose from ",
    "emulator status --remove": "--remove deletes what setup brought: `etprof emulator setup --rem",
}


@pytest.mark.parametrize("choices", ["'profile', 'run'", "profile, run"])
def test_choices_are_shown_alike_in_every_python(choices: str) -> None:
    """Python 3.13 names them without quotes, 3.11 with."""
    parser = CommandParser(prog="etprof")
    with pytest.raises(UsageError) as caught:
        parser.error(f"argument COMMAND: invalid choice: 'profil' (choose from {choices})")
    assert str(caught.value) == (
        "argument COMMAND: invalid choice: 'profil' (choose from profile, run); did you mean "
        "'profile'? see `etprof --help`"
    )


@pytest.mark.parametrize("words", WRONG)
def test_wrong_words(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("etprof: ")
    assert WRONG[words] in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["export", "profile"])
def test_an_empty_precision_is_none(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main([command, "toy_cnn", "--dtype", ""]) == 2
    assert "unknown precision ''" in capsys.readouterr().err


def test_the_runs_of_a_model_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out_m" / "runs" / "linux").mkdir(parents=True)
    (tmp_path / "out_m" / "runs" / "linux" / "manifest.json").write_text("{}")
    assert main(["analyze", "out_m"]) == 4
    expected = "out_m holds no .etdump file; give a run directory: out_m/runs/linux"
    assert capsys.readouterr().err == f"etprof: {expected}\n"


def test_a_run_that_is_being_measured_is_not_moved(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    manifest = {"schema_version": 1, "platform": "linux", "model": {"name": "m"}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    code = (
        "import sys, pathlib\n"
        "from etprof.base.errors import OutputError\n"
        "from etprof.run.directory import set_aside\n"
        "try: set_aside(pathlib.Path(sys.argv[1]))\n"
        "except OutputError as error: print(error)"
    )
    with reserved(run):
        said = run_command([sys.executable, "-c", code, run]).stdout
    assert (
        said == f"another etprof is measuring into {run}; wait for it, or choose another folder\n"
    )
    assert set_aside(run) is not None
    assert not run.exists()


def in_shell(command: str, **environment: str) -> Completed:
    return run_command(["bash", "-c", command], environment=environment, timeout_s=60)


ETPROF = f"{shlex.quote(sys.executable)} -m etprof"


@pytest.mark.slow
def test_output_that_nobody_can_take() -> None:
    closed = in_shell(f"{ETPROF} config schema >&-")
    assert (closed.exit_code, closed.stderr) == (0, "")
    left = in_shell(f"{ETPROF} config schema | true; exit ${{PIPESTATUS[0]}}")
    assert (left.exit_code in (0, 141), left.stderr) == (True, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
def test_a_full_disk_behind_standard_output() -> None:
    full = in_shell(f"{ETPROF} config schema > /dev/full")
    assert full.exit_code == 7
    assert full.stderr == "etprof: cannot use standard output: No space left on device\n"


def test_a_caller_of_main_may_collect_what_it_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream without a descriptor turned a refusal of the system into a traceback."""
    refuse = OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), "x")
    monkeypatch.setattr(cli, "run_command_line", Mock(side_effect=refuse))
    with redirect_stdout(io.StringIO()):
        assert cli.main(["doctor"]) == 4
    assert capsys.readouterr().err.startswith("etprof: x: File name too long")


def test_a_terminal_that_knows_ascii_only() -> None:
    said = in_shell(f"{ETPROF} run --help | cat; {ETPROF} bench --help", PYTHONIOENCODING="ascii")
    assert said.exit_code == 0
    assert "models x precisions" in said.stdout
    assert said.stderr == ""


def flags_of(command: str) -> dict[str, argparse.Action]:
    """Every flag of a command, by name."""
    (commands,) = (a for a in build_parser(command)._actions if a.dest == "command")
    assert isinstance(commands.choices, dict)
    found: argparse.ArgumentParser = commands.choices[command]
    return {name: action for action in found._actions for name in action.option_strings}


@pytest.mark.parametrize("command", ["optimize", "profile", "report", "numerics"])
def test_a_folder_is_named_by_out_and_by_outdir(command: str) -> None:
    flags = flags_of(command)
    assert flags["--out"].dest == flags["--outdir"].dest
    shown = {name for name in ("--out", "--outdir") if flags[name].help != argparse.SUPPRESS}
    assert len(shown) == 1


def test_a_file_is_not_named_by_outdir() -> None:
    assert "--outdir" not in flags_of("config")
    for flags in (flags_of("export"), flags_of("export-llm")):
        assert flags["--out"].dest != flags["--outdir"].dest


def test_the_other_name_of_a_folder_is_heard() -> None:
    for name in ("--out", "--outdir"):
        parsed = build_parser("profile").parse_args(["profile", "m.pte", name, "there"])
        assert str(parsed.out) == "there"
        parsed = build_parser("optimize").parse_args(["optimize", "toy_cnn", name, "there"])
        assert str(parsed.outdir) == "there"
    assert build_parser("profile").parse_args(["profile", "m.pte"]).out is None


def test_flags_offer_what_the_code_knows() -> None:
    """A-D27: fields, profiles, precisions and defaults are said by their owners, not by a copy."""
    from etprof.analysis.compare.comparability import FIELDS
    from etprof.backends.registry import BY_NAME, DEFAULT
    from etprof.export.request import PRECISIONS
    from etprof.statistics.effect import DEFAULT_MARGIN
    from etprof.targets.android.profiles import PROFILES

    compare = flags_of("compare")
    assert compare["--allow"].choices == tuple(FIELDS)
    assert compare["--margin"].default == DEFAULT_MARGIN
    assert flags_of("device")["--profile"].choices == tuple(PROFILES)
    words = str(flags_of("export")["--dtype"].help).replace("(", " ").replace(",", " ").split()
    assert [words.count(name) for name in PRECISIONS] == [1] * len(PRECISIONS)
    for command in ("profile", "export"):
        backend = flags_of(command)["--backend"]
        assert backend.choices == tuple(BY_NAME)
        assert DEFAULT in str(backend.help)


def test_flags_are_declared_for_the_command_alone() -> None:
    """`etprof --help` loads none of what flags say; a command asks for its own."""
    (commands,) = (a for a in build_parser("compare")._actions if a.dest == "command")
    assert isinstance(commands.choices, dict)
    assert set(commands.choices) == set(COMMANDS)
    declared = {name for name, each in commands.choices.items() if len(each._actions) > 2}
    assert declared == {"compare"}
