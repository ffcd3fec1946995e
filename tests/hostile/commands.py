"""The command lines of each kind of file, and the exit codes that may come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from etprof.views.formats import format_names
from tests.hostile.seeds import PROMPT

READ: Final = frozenset({0, 4, 6})
"""Read, with right outputs or wrong ones, or refused as missing or damaged."""
ASKED: Final = READ | {2}
"""Also: what was asked for is not in it, or a file written by people has a mistake."""
MEASURED: Final = ASKED | {5}
"""Also: what the runner left cannot be used."""
STORED: Final = ASKED | {8, 9}
"""Also: the history is damaged, or no history; or a check has nothing to compare with."""


@dataclass(frozen=True)
class Command:
    """One way to have a file read: command lines after each other, or a call of the Python API."""

    name: str
    lines: Callable[[Random], Sequence[Sequence[str]]]
    codes: frozenset[int]
    call: Callable[[Path], None] | None = None
    writes_pages: bool = True
    """False for what copies the files of others as they are."""


def _fixed(name: str, *lines: str, codes: frozenset[int] = READ) -> Command:
    words = [line.split() for line in lines]
    return Command(name, lambda _: words, codes)


def _report(random: Random) -> list[list[str]]:
    chosen = random.sample(list(format_names()), random.choice((1, 1, 2)))
    line = ["report", "run", "--format", ",".join(chosen)]
    return [line + random.choice(([], ["--out", "out"], ["--reference", "run", "--out", "out"]))]


def _history_add(random: Random) -> list[list[str]]:
    return [["history", "add", "run", "--store", "empty.sqlite"], random.choice(_AFTER_ADDING)]


_AFTER_ADDING: Final = [
    [*line.split(), "--store", "empty.sqlite"]
    for line in (
        "history list", "history show 1", "history export out.json",
        "history export out.hud --format hud", "dashboard --export site",
    )
]  # fmt: skip
RUN: Final = (
    _fixed("analyze", "analyze run"),
    _fixed("analyze", "analyze run --json"),
    _fixed("analyze", "analyze run --quiet --out out"),
    _fixed("analyze", "analyze run/android_off/known_android_off_t1.etdump --json"),
    _fixed("compare", "compare run:android_off run:android_sme2", codes=ASKED),
    _fixed("compare", "compare run run --json --allow threads", codes=ASKED),
    Command("report", _report, READ),
    Command("report", _report, READ),
    Command("report", _report, READ),
    _fixed("validate", "validate run", codes=READ | {1}),
    _fixed("validate", "validate run --json", codes=READ | {1}),
    Command("history add", _history_add, ASKED),
    _fixed("run --analysis-only", "run run.json --analysis-only --output-root run", codes=ASKED),
    _fixed("run --from-manifest", "run --from-manifest run --dry-run", codes=ASKED),
)
FINISHED: Final = (
    # 7: a folder stands where it writes.
    _fixed("run --resume", "run config.json --resume --no-wait", codes=MEASURED | {7}),
    _fixed("run --from-manifest", "run --from-manifest finished --dry-run --json", codes=ASKED),
    _fixed("validate", "validate finished --json", codes=READ | {1}),
    _fixed("analyze", "analyze finished --json"),
)
CONFIG, GENERATION_CONFIG = (
    (
        _fixed("config check", f"config check {name}", codes=ASKED),
        _fixed("run --dry-run", f"run {name} --dry-run", codes=ASKED),
        _fixed("run --dry-run", f"run {name} --dry-run --json", codes=ASKED),
    )
    for name in ("config.json", "generation.json")
)
MATRIX: Final = (
    _fixed("bench --dry-run", "bench matrix.json --dry-run", codes=ASKED),
    _fixed("bench --dry-run", "bench matrix.json --dry-run --json", codes=ASKED),
)
PROGRAM: Final = (
    _fixed("profile", "profile m.pte --blocks 1 --out out --no-wait", codes=MEASURED),
    _fixed("profile", "profile m.pte --blocks 1 --out out --no-wait --json", codes=MEASURED),
    _fixed("calibrate", "calibrate m.pte --blocks 2 --pairs 2 --out out --no-wait", codes=MEASURED),
    _fixed("run", "run config.json --output-root out --no-wait", codes=MEASURED),
)
INPUT: Final = (
    _fixed(
        "profile", "profile m.pte --blocks 1 --out out --no-wait --inputs x.npy", codes=MEASURED
    ),
)
ETRECORD: Final = (
    _fixed(
        "profile --etrecord",
        "profile m.pte --blocks 1 --out out --no-wait --etrecord x.etrecord",
        codes=MEASURED,
    ),
)
LIBRARY: Final = (_fixed("doctor", "doctor --library package.whl", codes=READ | {1}),)
LOCK: Final = (
    _fixed("profile", "profile m.pte --blocks 1 --out out --no-wait", codes=MEASURED | {7}),
    _fixed("calibrate", "calibrate m.pte --blocks 2 --pairs 2 --no-wait", codes=MEASURED | {7}),
)
_GENERATING: Final = "profile m.pte --blocks 1 --out out --no-wait --generate 4"
PROMPTS: Final = (
    _fixed("profile --generate", f"{_GENERATING} --prompt-tokens prompt.txt", codes=MEASURED),
    _fixed("run --dry-run", "run generation.json --dry-run", codes=ASKED),
)


def _tokenizing(name: str) -> Command:
    words = [*_GENERATING.split(), "--tokenizer", name, "--prompt", PROMPT]
    return Command("profile --generate", lambda _: [words], MEASURED)


TOKENIZER: Final = (
    _tokenizing("tokenizer.json"),
    _fixed("run --dry-run", "run generation.json --dry-run", codes=ASKED),
)
TOKENIZER_TABLE: Final = (_tokenizing("tiktoken.model"),)
THRESHOLDS: Final = (
    _fixed("report", "report run --thresholds thresholds.json --format md", codes=ASKED),
    _fixed("report", "report run --thresholds thresholds.json --format json", codes=ASKED),
)


def _importing(name: str) -> tuple[Command, ...]:
    def lines(random: Random) -> list[list[str]]:
        first = f"history import {name} --store empty.sqlite".split()
        return [first, random.choice([*_AFTER_ADDING, *_ASKING_EMPTY])]

    return (Command("history import", lines, STORED | {1}),)


def _asking(store: str) -> list[list[str]]:
    lines = (
        "history list", "history list --failed", "history show 1", "history changes",
        "history noise", "history noise --json", "history check --baseline window:2",
        "history check --baseline base --format markdown",
        "history check --baseline branch:main --format json --metric all",
        "history export out.json", "history export out.parquet",
        "history export out.hud --format hud", "history pin", "history pin again 1",
        "history add r0", "history import export.json", "dashboard --export site",
    )  # fmt: skip
    return [[*line.split(), "--store", store] for line in lines]


_ASKING_EMPTY: Final = [line for line in _asking("empty.sqlite") if line[1] == "check"]


def _store_command(line: list[str]) -> Command:
    name = " ".join(line[:1] if line[0] == "dashboard" else line[:2])
    return Command(name, lambda _: [line], STORED | ({1} if "check" in line else set()))


STORE: Final = tuple(_store_command(line) for line in _asking("history.sqlite"))
_FOREIGN_FILES: Final = (
    ["model.etdump", "runner.log"],
    ["model.etdump"],
    ["runner.log"],
    ["bench.json"],
    ["ios.log"],
)
FOREIGN: Final = (
    Command(
        "import",
        lambda random: (
            [
                ["import", *names, *random.choice(([], ["--time-scale", "ns"])), "--out", "run"]
                for names in [random.choice(_FOREIGN_FILES)]
            ]
            + [["validate", "run"], ["analyze", "run", "--json"]]
        ),
        ASKED | {1},
    ),
)
IMPORT_JSON: Final = _importing("export.json")
IMPORT_PARQUET: Final = _importing("export.parquet")
IMPORT_HUD: Final = _importing("export.hud")
