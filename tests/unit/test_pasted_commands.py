"""U3-13: commands that etprof prints are pasted into a shell, whatever the folder is called."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from etprof.analysis.findings.commands import command_in
from etprof.base.text import as_operand, command_line
from etprof.cli import build_parser
from etprof.cli.optimize import _sentences
from etprof.run.manifest import resume_hint
from etprof.tables.machine import EMULATOR_PARTS
from etprof.targets.policy import RequiredPart
from etprof.views.fitting import fold
from etprof.views.terminal import terminal_table
from tests.known_etdumps import foreign_etdump
from tests.known_runs import Run, on_off_run, write_run
from tests.odd_paths import ODD_NAME, pasted, printed_commands
from tests.world.host import Done, etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import RunSpec

RUN = "the run's folder"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an odd name, which has a run, a program and an ETDump."""
    folder = tmp_path_factory.mktemp("pasted") / ODD_NAME
    folder.mkdir()
    assert len(str(folder)) >= 200
    write_run(folder / RUN, on_off_run())
    (folder / "-m.pte").write_bytes(b"program")
    (folder / "-x.etdump").write_bytes(foreign_etdump())
    (folder / "-unknown.etdump").write_bytes(foreign_etdump(1))
    sme1 = replace(on_off_run().experiments[1], name="x", sme="sme1")
    write_run(folder / "-other", Run([sme1, replace(sme1, name="y", threads=4)]))
    return folder


def run(folder: Path, *words: object) -> Done:
    with simulated_host(lambda **_: SimTarget(RunSpec())):
        done = etprof(folder, *words, columns=60)
    assert done.exit_code in {0, 1, 2}, done.stderr
    return done


def names_what_is_there(folder: Path, words: list[str]) -> bool:
    """Whether some word is a file or folder; every other is none of the shell's making."""
    assert not [word for word in words if "/elsewhere" in word]
    build_parser().parse_args(words)
    return any((folder / word.rpartition(":")[0]).exists() for word in words if ":" in word) or any(
        (folder / word).exists() for word in words
    )


CASES: dict[str, tuple[object, ...]] = {
    "analyze": ("analyze", RUN),
    "profile": ("profile", "./-m.pte", "--blocks", "4", "--out", "out '1'", "--no-wait"),
    "import": ("import", "./-x.etdump", "--time-scale", "ns", "--out", "new '1'"),
    "an ETDump of an unknown clock": ("report", "./-unknown.etdump"),
    "config init": ("config", "init", "--model", "./-m.pte", "--out", "a 'config'.json"),
    "compare": ("compare", RUN, "./-other"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_can_be_pasted(folder: Path, case: str) -> None:
    """Every path in it arrives as it is, on a terminal where the command takes several lines."""
    done = run(folder, *CASES[case])
    commands = printed_commands(done.stdout + done.stderr)
    assert commands, done
    there = [names_what_is_there(folder, pasted(command)) for command in commands]
    assert any(there)


def test_a_run_that_was_cut_off_goes_on_by_what_is_printed() -> None:
    manifest = cast("Any", SimpleNamespace(config={"content": {}}))
    for path, word in (("-cut", "./-cut"), (ODD_NAME, ODD_NAME)):
        (command,) = printed_commands(resume_hint(manifest, Path(path)))
        assert pasted(command) == ["run", "--from-manifest", word, "--resume"]


def test_a_search_names_both_programs(folder: Path) -> None:
    found = SimpleNamespace(is_complete=True, program="a b.pte", plain_program="a.pte", gains=None)
    *_, line = _sentences(cast("Any", found), Path(ODD_NAME), (), is_timed=True)
    (command,) = printed_commands("\n".join(fold(line, 60)))
    assert pasted(command) == [
        "profile", f"{ODD_NAME}/a.pte", "--against", f"{ODD_NAME}/a b.pte"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("is_timed", "purpose"), [(True, "to time both"), (False, "to count the kernels of both")]
)
def test_a_search_promises_no_times_of_a_target_without(is_timed: bool, purpose: str) -> None:
    """Under emulation "to time both, interleaved" led to a run that shows no times."""
    found = SimpleNamespace(is_complete=True, program="a.pte", plain_program=None, gains=None)
    note, _ = _sentences(cast("Any", found), Path("out"), (), is_timed=is_timed)
    assert purpose in note


@pytest.mark.parametrize("width", [40, 60, 100, 1000])
def test_no_line_ends_in_a_quoted_word(width: int) -> None:
    """A backslash between quotes is a character of the path, and no line goes on there."""
    path = Path(ODD_NAME, "it's one")
    command = command_line("profile", path, "--against", path)
    for line in (
        f"Next: {command}",
        f"   {command}",
        f"All of it, with 3 more findings: {command}",
    ):
        (found,) = printed_commands("\n".join(fold(line, width)))
        assert pasted(found) == ["profile", str(path), "--against", str(path)]
    # In a sentence it has lines of its own.
    lines = fold(f"that isn't all (`{command}`); it isn't either", width)
    if len(lines) > 1:
        assert lines[0] == "that isn't all"
        assert lines[-1] == "it isn't either"
        words = pasted("\n".join(lines[1:-1]))
        assert words == ["profile", str(path), "--against", str(path)]
    else:
        assert command_in(lines[0]) == command


def test_a_command_in_a_sentence_is_on_one_line_where_it_fits() -> None:
    """U3-13: with `--full`, half of a finding's command was on the next line, and a command there."""
    command = "etprof export toy_cnn --dtype fp16 --rewrite half_pointwise_weights"
    for before in range(0, 80, 7):
        lines = fold(f"{'x ' * before}`{command}` {'y ' * 30}", 80)
        assert printed_commands("\n".join(lines)) == [command]
        assert max(map(len, lines)) <= 80


def test_an_open_quote_is_a_character() -> None:
    lines = fold("  etprof analyze it's " + "word " * 9, 30)
    assert "it's" in " ".join(lines)


def test_a_path_is_no_flag() -> None:
    assert pasted(command_line("analyze", Path("-run"), "--full")) == [
        "analyze",
        "./-run",
        "--full",
    ]
    assert as_operand("-net.py:Net") == "./-net.py:Net"
    assert as_operand("toy_cnn") == "toy_cnn"


def test_a_path_that_looks_like_a_flag_is_told_how_to_be_written(folder: Path) -> None:
    done = etprof(folder, "analyze", "-x.etdump")
    assert done.exit_code == 2
    assert "./-x.etdump" in done.stderr
    assert etprof(folder, "analyze", "--", "-x.etdump").exit_code == 0


def test_a_path_stands_on_one_line(folder: Path) -> None:
    """Programs read the lines of `report`: a path with blanks was several of them."""
    done = run(folder, "report", folder / RUN, "--format", "md")
    assert done.stdout.endswith(f"\n{folder / RUN / 'report.md'}\n")
    assert (
        f"Report: {folder / RUN / 'report.html'}\n" in run(folder, "analyze", folder / RUN).stdout
    )
    parts = terminal_table(EMULATOR_PARTS.of([RequiredPart("one", folder / RUN)]))
    stream = io.StringIO()
    Console(width=40, file=stream).print(parts, crop=False)
    assert f"{folder / RUN}\n" in stream.getvalue()
