"""What every command prints: a screen at most, at any width, with and without colours and Unicode (U1, U5)."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from etprof.base.text import ASCII_ERRORS
from etprof.cli import COMMANDS, build_parser, load_command, output
from etprof.history.store import open_store
from etprof.tables.brief import AnswerLine, AnswerPoint, BarPart, Brief
from etprof.views.brief import BriefAnswer
from etprof.views.fitting import fold, folded
from etprof.views.json_figures import DOCUMENTS, SAME_AS
from etprof.views.terminal import folded_text
from tests.json_numbers import undeclared
from tests.known_history import KnownHistory, fill
from tests.known_runs import on_off_run, write_run
from tests.upstream_files import runner_log
from tests.world.host import Done, etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import RunSpec

ROOT = Path(__file__).parents[2]
MOST_LINES = 15
WIDTHS = (80, 120, 160)
WIDE = 4000
CASES = {
    "profile": "profile m.pte --blocks 4 --out {fresh} --no-wait",
    "run": "run config.json --dry-run",
    "bench": "bench matrix.json --dry-run",
    "analyze": "analyze run",
    "compare": "compare run:android_off run:android_sme2",
    "report": "report run --out page --format html,md,csv",
    "validate": "validate run",
    "calibrate": "calibrate m.pte --blocks 4 --pairs 4 --out {fresh} --no-wait",
    "import": "import runner.log --out {fresh}",
    "history add": "history add run",
    "history list": "history list",
    "history show": "history show 1",
    "history check": "history check --metric all",
    "history pin": "history pin",
    "history accept": "history accept",
    "history changes": "history changes",
    "history noise": "history noise",
    "history export": "history export {fresh}.json",
    "history import": "history import runs.json",
    "dashboard": "dashboard --export {fresh}",
    "config check": "config check config.json",
    "emulator": "emulator status",
    "doctor": "doctor",
    "export-llm": "export-llm tiny.yaml --dry-run",
}
SLOW_CASES = {
    "models": "models",
    "export": "export toy_cnn --outdir artifacts",
    "optimize": "optimize toy_cnn --dry-run",
    "numerics": "numerics toy_cnn --out values",
}
ELSEWHERE = {
    "device": "needs adb: tests/integration/android/test_android_settings.py",
    "count-kernels": "needs a debugger: tests/integration/test_debugger.py",
    "config init": "prints one file, asked for by name",
    "config schema": "prints one file, asked for by name",
    "completion": "prints one script, asked for by name",
    "docs": "prints one page, asked for by name",
}
"""What is no answer, or is tested where its world is."""
PRINTS_A_FILE = ("config init", "config schema", "completion", "docs")
CUT = re.compile(r"(\d+ )?more: --full|Left out at this width: .*")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command and action, with its parser."""
    for name, parser in subparsers(build_parser()):
        actions = dict(subparsers(parser))
        yield from ((f"{name} {action}", each) for action, each in actions.items())
        if not actions:
            yield name, parser


def subparsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a history with a regression, a program, a config and a matrix."""
    folder = tmp_path_factory.mktemp("terminal")
    write_run(folder / "run", on_off_run())
    (folder / "m.pte").write_bytes(b"program")
    (folder / "tiny.yaml").write_text("base: {model_class: llama3, params: tiny.json}")
    (folder / "tiny.json").write_text('{"dim": 64}')
    (folder / "runner.log").write_text(runner_log([1.3, 0.13, 0.126]))
    store = open_store(str(folder / "etprof_history.sqlite"))
    fill(
        store,
        KnownHistory(
            commits=8, precisions=("fp32",), devices=("A phone with a long name, 8 cores",)
        ),
    )
    store.close()
    experiment = {"name": "one", "sme": "auto", "runs": 5, "warmup": 1, "threads": [1]}
    measurement = {"blocks": 6, "min_seconds": 0.01}
    config = {"model": "m.pte", "output_root": "out", "experiments": [experiment]}
    (folder / "config.json").write_text(json.dumps({**config, "measurement": measurement}))
    matrix = {
        "name": "known", "models": ["toy_cnn", "decoder"], "precisions": ["fp32", "int8"],
        "threads": [1, 2], "devices": [{"name": "host", "kind": "local"}], "sme": ["on", "off"],
    }  # fmt: skip
    (folder / "matrix.json").write_text(json.dumps(matrix))
    assert etprof(folder, "history", "export", "runs.json").exit_code == 0
    return folder


class World:
    """Runs each case once, and shows what it had to show on every kind of terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cache  # noqa: B019 - lives as long as the module
    def run(self, case: str, *more: str) -> tuple[Done, tuple[Any, ...]]:
        """One command line at 80 columns: what it printed, and of what that was made."""
        words = (
            {**CASES, **SLOW_CASES}[case]
            .format(fresh=re.sub(r"\W+", "_", " ".join((case, *more))))
            .split()
        )
        shown: list[Any] = []

        def show(*parts: Any) -> None:  # noqa: ANN401 - whatever can be shown
            shown.extend(parts)
            SHOW(*parts)

        # What needs PyTorch compares values, and those of the simulated world mean nothing.
        host = simulated_host(make_target) if case in CASES else nullcontext()
        with pytest.MonkeyPatch.context() as patch, host:
            patch.setenv("ETPROF_LOCKS", str(self.folder / "locks"))
            for name in ("NO_COLOR", "FORCE_COLOR", "ETPROF_HISTORY"):
                patch.delenv(name, raising=False)
            for module in [output, *(load_command(name) for name in COMMANDS)]:
                if hasattr(module, "show"):
                    patch.setattr(module, "show", show)
            done = etprof(self.folder, *words, *more, columns=80)
        assert done.exit_code in {0, 1, 3}, done.stderr
        assert done.stdout
        return done, tuple(shown)

    def brief(self, case: str) -> str:
        return self.run(case)[0].stdout

    @cache  # noqa: B019
    def again(
        self, case: str, *more: str, columns: int = 80, encoding: str = "utf-8", **variables: str
    ) -> str:
        """The same on another terminal."""
        shown = self.run(case, *more)[1]
        assert shown
        stream = io.TextIOWrapper(io.BytesIO(), encoding, errors=ASCII_ERRORS)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(stream):
            patch.setenv("COLUMNS", str(columns))
            for name, value in variables.items():
                patch.setenv(name, value)
            SHOW(*shown)
            stream.flush()
            return stream.buffer.getvalue().decode(encoding)


SHOW = output.show


def make_target(**_: object) -> SimTarget:
    return SimTarget(RunSpec())


@pytest.fixture(scope="module")
def world(folder: Path) -> World:
    return World(folder)


def words_of(text: str) -> set[str]:
    lines = (line for line in text.splitlines() if not CUT.fullmatch(line))
    return {
        re.sub(r"[━┏┓┗┛┃│┡┩╇┳┴┘└─┠]", "", word)
        for line in lines
        for word in line.replace(",", " ").split()
    }


def is_whole(word: str, known: set[str]) -> bool:
    """Whether a word is one that was to be shown, or goes on where a path or a long name may break."""
    if word in known or set(word) <= set("█▓▒░…"):
        return True
    return any(
        "/" in longer or not set("._") & set(longer) or is_part(word, longer)
        for longer in known
        if word in longer and ("/" in longer or len(longer) > 24)
    )


def is_part(word: str, name: str) -> bool:
    """Whether it begins and ends at dots or underscores of the name, or at its ends."""
    before, after = f".{name}.".split(word, maxsplit=1)
    return before[-1] in "._" and (word[-1] in "._" or after == ".")


def check_widths(shown: str, columns: int) -> None:
    for line in shown.splitlines():
        # A path stands whole, spaces or not: people copy it.
        is_one_thing = len(line.split()) == 1 or Path(line.strip()).exists()
        assert len(line.rstrip()) <= columns or is_one_thing, line


def test_every_command_is_here_or_says_why_not() -> None:
    """U1: a new command is held to a screen, too."""
    names = {name for name, _ in commands()}
    assert names == {*CASES, *SLOW_CASES, *ELSEWHERE}


def test_every_command_that_prints_has_json() -> None:
    """U5: `history list`, `show` and `changes` and `config check` had no `--json`."""
    lacking = [
        name
        for name, parser in commands()
        if not any("--json" in each.option_strings for each in parser._actions)
    ]
    assert sorted(lacking) == sorted(PRINTS_A_FILE)


@pytest.mark.parametrize("case", CASES)
def test_an_answer_fits_a_screen(world: World, case: str) -> None:
    """U1: `run` printed 150 lines, `history check` 115 lines of word shards."""
    assert world.again(case) == world.brief(case)
    for columns in WIDTHS:
        shown = world.again(case, columns=columns)
        assert len(shown.splitlines()) <= MOST_LINES, shown
        check_widths(shown, columns)


@pytest.mark.parametrize("case", CASES)
def test_no_word_is_broken(world: World, case: str) -> None:
    """U1: kernel names broke in the middle of a word; brief or full, at 80 columns."""
    ways: tuple[tuple[str, ...], ...] = ((),) if case == "dashboard" else ((), ("--full",))
    # How many findings have no room depends on the width.
    known = {"finding:", "findings:"}
    for way in ways:
        known |= words_of(world.again(case, *way, columns=WIDE))
    for way in ways:
        shown = world.again(case, *way)
        check_widths(shown, 80)
        assert sorted(word for word in words_of(shown) if not is_whole(word, known)) == []


@pytest.mark.parametrize("case", CASES)
def test_colours_and_signs_may_be_missing(world: World, case: str) -> None:
    """U1: NO_COLOR, a pipe and an ASCII terminal lose nothing but looks."""
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert COLOUR.sub("", world.again(case, **terminal)) == world.brief(case)
    plain = world.again(case, **terminal, NO_COLOR="1")
    assert not re.search(r"\x1b\[(3|4|9|10)\d", plain)
    bare = world.again(case, encoding="ascii")
    assert not re.search(r"\\u[0-9a-f]{4}|\\x[0-9a-f]{2}", bare), bare
    assert len(bare.splitlines()) <= MOST_LINES
    check_widths(bare, 80)


@pytest.mark.parametrize("case", CASES)
def test_json_is_one_object_with_the_fields_that_the_page_names(world: World, case: str) -> None:
    """U5: some commands printed lists without a version."""
    line = line_of(case)
    document = json.loads(world.run(case, "--json")[0].stdout)
    assert isinstance(document["schema_version"], int)
    assert documented()[line] <= set(document)
    assert undeclared(SAME_AS.get(line, line), document) == []


def test_every_command_of_the_page_declares_its_numbers() -> None:
    """U3-5: 18 of 36 did."""
    assert set(documented()) == {*DOCUMENTS, *SAME_AS}


DRY = {
    "run": "--dry-run",
    "bench": "--dry-run",
    "export-llm": "--dry-run",
    "dashboard": "--export",
    "emulator": "status",
    "optimize": "--dry-run",
}


def line_of(case: str) -> str:
    """A case's command as docs/json.md names it."""
    return f"{case} {DRY[case]}" if case in DRY else case


@cache
def documented() -> dict[str, set[str]]:
    """The fields in docs/json.md, by command."""
    found = {}
    page = (ROOT / "docs" / "json.md").read_text().partition("\n## Unit and basis")[0]
    for line in page.splitlines():
        if line.startswith("| `"):
            _, names, fields, _ = line.split("|")
            first = re.split(r"[;:]", fields)[0]
            for name in re.findall(r"`([^`]+)`", names):
                found[name] = set(re.findall(r"`(\w+)`", first))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW_CASES)
def test_an_export_fits_a_screen(world: World, case: str) -> None:
    """U1: the same of commands that need PyTorch."""
    assert world.again(case) == world.brief(case)
    ways: list[dict[str, Any]] = [{"columns": each} for each in WIDTHS]
    for way in (*ways, {"encoding": "ascii"}, {"NO_COLOR": "1"}):
        shown = world.again(case, **way)
        assert len(shown.splitlines()) <= MOST_LINES
        check_widths(shown, way.get("columns", 80))
    known = words_of(world.again(case, columns=WIDE))
    assert sorted(word for word in words_of(world.brief(case)) if not is_whole(word, known)) == []
    document = json.loads(world.run(case, "--json")[0].stdout)
    assert isinstance(document["schema_version"], int)
    assert undeclared(line_of(case), document) == []


@pytest.mark.parametrize("sentences", [1, 2, 3, 4, 6, 7])
def test_findings_come_before_the_picture_above_them(sentences: int) -> None:
    """U1: where one line was missing for three findings, none was shown. U3-2: nothing is cut."""
    shown = 2 if sentences in {4, 7} else 3
    brief = Brief(
        tuple(AnswerLine(f"sentence{number} " + "word " * 12) for number in range(sentences)),
        bar=(BarPart("a", 0.5), BarPart("b", 0.5)),
        bar_title="Where the time goes",
        points=tuple(
            AnswerPoint(f"finding{number}", f"etprof mend {number}") for number in range(3)
        ),
        ends=("Report: r", "All of it: etprof analyze r --full", "Next: n"),
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(BriefAnswer(brief))
    text = console.export_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert len(re.findall("finding[0-9]", text)) == len(re.findall("etprof mend", text)) == shown
    assert all(f"sentence{number}" in text for number in range(sentences))
    assert text.count("word") == 12 * sentences
    # The line that names the command says that there is more: no second one counts it.
    assert "more: --full" not in text
    assert "All of it: etprof analyze r --full" in text


def test_a_command_of_a_finding_is_whole() -> None:
    """A newcomer got `etprof export m.py:M --rewrite …`, which nobody can copy."""
    long = "etprof export net.py:Keyword --dtype fp16 --rewrite " + ",".join(
        ["kept_dimensions"] * 3
    )
    points = (
        AnswerPoint("first", "words " * 200),
        AnswerPoint("second " * 20, long),
        AnswerPoint("third", long),
    )
    console = Console(width=80, record=True, file=io.StringIO())
    brief = Brief((AnswerLine("told " * 40),), points=points, ends=("All of it: --full",))
    console.print(BriefAnswer(brief))
    text = console.export_text()
    assert len(text.splitlines()) <= MOST_LINES
    commands = re.findall(r"etprof export(?:[^\\\n]|\\\n)*", text)
    assert [shlex.split(each.replace("\\\n", "")) for each in commands] == [shlex.split(long)] * 2
    assert "…" not in text
    # AND the worst is named, though what to do about it takes more lines than there are
    assert "\nfirst\n" in text
    assert "words" not in text


def test_the_picture_gives_way_to_the_worst_finding() -> None:
    """Two small ones stood beside it, and what was worth 60 % was "1 more finding"."""
    console = Console(width=80, record=True, file=io.StringIO())
    worst = AnswerPoint("worst", "etprof export net.py:Net " + "--rewrite plain_views " * 12)
    points = (worst, AnswerPoint("second", "do"), AnswerPoint("third", "do"))
    parts = (BarPart("a", 0.5), BarPart("b", 0.5))
    for headlines, has_bar in ((1, True), (5, False)):
        brief = Brief((AnswerLine("told " * 14),) * headlines, parts, "Where", points=points)
        console.print(BriefAnswer(brief))
        text = console.export_text()
        assert text.count("plain_views") == 12
        assert ("Where:" in text) == has_bar


def test_a_check_begins_with_what_became_worse(world: World) -> None:
    """U1: the unchanged stood between the regressions, and each was a block of eight lines."""
    headline, _, runs = world.brief("history check").partition("\n#")
    assert re.search(r"\d regression", headline)
    assert "unchanged" in headline
    assert re.search(r"^  regression: ", runs, re.MULTILINE)
    assert "unchanged" not in runs


@pytest.mark.parametrize("width", [40, 80])
def test_a_command_on_several_lines_is_copied_as_one(width: int) -> None:
    """U1: its first line alone was run, which measured one program without the other."""
    command = "etprof profile out_small/optimize_fp16/a.pte --against out_small/optimize_fp16/b.pte"
    for start in ("  ", "Next: "):
        lines = fold(start + command, width)
        assert len(lines) > 1
        assert max(map(len, lines)) <= width
        joined = "\n".join(lines).replace("\\\n", "")  # as a shell does
        assert shlex.split(joined.removeprefix("Next:")) == shlex.split(command)
    # AND in a sentence, where it stood between backticks, without a backslash
    first, *lines, last = fold(f"the same as `{command}` says", width)
    assert (first, last) == ("the same as", "says")
    assert max(map(len, lines)) <= width
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


def test_the_whole_answer_has_a_long_command_too() -> None:
    command = (
        "  etprof profile out_small/optimize_fp16/a.pte --against out_small/optimize_fp16/b.pte"
    )
    console = Console(file=io.StringIO(), width=60)
    console.print(folded_text(("What next?\n", "bold"), command))
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "What next?", *fold(command, 60)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("encoder.layers.0.self_attn.in_proj", 16, ["encoder.layers.", "0.self_attn.in_", "proj"]),
        ("kai_run_matmul_clamp_f32", 14, ["kai_run_", "matmul_clamp_", "f32"]),
        ("in/a_long_folder/net.py:14", 12, ["in/", "a_long_folde", "r/net.py:14"]),
        ("0123456789", 4, ["0123", "4567", "89"]),
        ("short one", 5, ["short", "one"]),
    ],
)
def test_nothing_of_a_long_name_is_left_out(text: str, width: int, lines: list[str]) -> None:
    """A module's path in a narrow column lost its middle."""
    assert folded(text, width) == lines
    assert "".join(folded(text, width)) == text.replace(" ", "")
