"""Each figure with a unit on README and docs pages has a source, and the value that this has."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from etprof.base.errors import UsageError
from etprof.cli import build_parser
from tests import page_figures
from tests.page_figures import FIGURE, PAGES, ROOT, Source

SOURCES = page_figures.load_sources(page_figures.SOURCES.read_text("utf-8"))
TEXTS = {page_figures.page_name(path): path.read_text("utf-8") for path in PAGES}
MOST_EXAMPLES = 11
MOST_UNKNOWN = 4
"""Debts: who finds the command strikes one out."""


def kinds_of(source: Source) -> list[str]:
    named = ("origin", "constant", "computed", "example", "unknown")
    return [name for name in named if getattr(source, name)]


def problems_of(source: Source, text: str) -> list[str]:
    """What is wrong with an entry."""
    spans = source.spans(text)
    shown = [match.group() for start, end in spans for match in FIGURE.finditer(text[start:end])]
    problems = []
    if len(kinds_of(source)) != 1 or bool(source.text) == bool(source.block):
        problems.append("has to have a text or a block, and one kind of source")
    if not shown:
        problems.append("has no figure on the page")
    if len(spans) != 1 and not source.constant:
        problems.append(f"stands on the page {len(spans)} times, not once")
    values = page_figures.values_of(source)
    if values and not (
        len(shown) == len(values) * len(spans)
        and all(
            page_figures.is_shown_as(values[index % len(values)], figure)
            for index, figure in enumerate(shown)
        )
    ):
        problems.append(f"shows {shown} where the code has {values}")
    if source.block and len(spans) == 1 and source.digest != page_figures.digest_of(text, source):
        problems.append("its figures changed: make them again, then `python -m tests.page_figures`")
    if source.origin and not is_there(source.origin):
        problems.append(f"there is no {source.origin}")
    return problems


def is_there(origin: str) -> bool:
    """Whether a command, a test or an address can be run, read or followed."""
    program, *words = origin.split()
    path, _, name = origin.partition("::")
    if name:
        return f"def {name}(" in (ROOT / path).read_text("utf-8")
    checks: dict[str, Callable[[list[str]], bool]] = {
        "python": is_script, "etprof": is_command, "cmake": is_preset,
        "pip": lambda _: origin in TEXTS["README.md"],
    }  # fmt: skip
    return checks[program](words) if program in checks else origin.startswith("https://")


def is_script(words: list[str]) -> bool:
    if words[0] == "-m":
        return importlib.util.find_spec(words[1]) is not None
    return (ROOT / words[0]).is_file()


def is_command(words: list[str]) -> bool:
    try:
        build_parser().parse_args(words)
    except UsageError:
        return False
    return True


def is_preset(words: list[str]) -> bool:
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["workflowPresets"]
    return words[:2] == ["--workflow", "--preset"] and words[2] in {p["name"] for p in presets}


@pytest.mark.parametrize("page", TEXTS)
def test_each_figure_of_a_page_has_a_source(page: str) -> None:
    """Issue 38.8: nobody could say where a number on a page had come from."""
    figures = page_figures.without_source(page, TEXTS[page], SOURCES)
    assert [f"{figure.page}:{figure.line}: {figure.text}" for figure in figures] == [], (
        "say in docs/figures.toml where they came from"
    )


@pytest.mark.parametrize("page", TEXTS)
def test_each_source_holds(page: str) -> None:
    """A constant or formula has the figure's value, a command is one, a block is as it was made."""
    sources = [source for source in SOURCES if source.page == page]
    problems = {source.text or source.block: problems_of(source, TEXTS[page]) for source in sources}
    assert {words: told for words, told in problems.items() if told} == {}


def test_sources_are_of_pages() -> None:
    assert {source.page for source in SOURCES} <= set(TEXTS)
    assert sum(len(page_figures.figures_in(page, text)) for page, text in TEXTS.items()) > 1000


def test_what_nobody_measured_or_knows_gets_no_more() -> None:
    """A source that everybody can give is none."""
    assert sum(source.example for source in SOURCES) <= MOST_EXAMPLES
    assert sum(source.unknown for source in SOURCES) <= MOST_UNKNOWN


MARGIN = Source("p", text="within 2 %", constant="etprof.statistics.effect:DEFAULT_MARGIN")
BUDGETS = "| file | time |\n|---|---|\n| a | 3.5 ms |\n"


@pytest.mark.parametrize(
    "figure",
    ["12 ms", "1,024 MiB", "13.8×", "7.2x", "86 %", "40 dB", "3 times", "53 SME2 microkernels"],
)
def test_a_figure_without_a_source_is_found(figure: str) -> None:
    text = f"No difference is within 2 %. A run takes {figure} here."
    (missing,) = page_figures.without_source("p", text, [MARGIN])
    assert missing.text == figure


@pytest.mark.parametrize("text", ["a 3x3 kernel", "1x3x224x224", "version 1.5.1", "2 threads"])
def test_what_has_no_unit_is_no_figure(text: str) -> None:
    assert page_figures.figures_in("p", text) == []


def test_a_figure_that_is_not_the_constant_s_is_found() -> None:
    assert problems_of(MARGIN, "no difference within 2 %") == []
    other = replace(MARGIN, text="within 3 %")
    assert problems_of(other, "no difference within 3 %") == [
        "shows ['3 %'] where the code has [0.02]"
    ]
    assert problems_of(MARGIN, "no difference within 3 %") != []


def test_a_table_whose_figures_change_is_found() -> None:
    source = Source("p", block="| file | time |", origin="python benchmarks/report_speed.py")
    source = replace(source, digest=page_figures.digest_of(BUDGETS, source))
    assert problems_of(source, BUDGETS) == []
    assert problems_of(source, BUDGETS.replace("3.5", "3.4")) != []
    assert problems_of(source, BUDGETS + "| b | 4 ms |\n") != []


@pytest.mark.parametrize(
    "origin",
    [
        "python benchmarks/no_such.py", "python -m docs.no_such", "etprof profil toy_cnn", "measured",
        "cmake --workflow --preset no-such", "tests/unit/test_effect.py::test_no_such",
    ],
)  # fmt: skip
def test_an_origin_that_is_none_is_found(origin: str) -> None:
    assert not is_there(origin)


def test_entries_are_read_as_they_stand() -> None:
    kinds = set(chain.from_iterable(kinds_of(source) for source in SOURCES))
    assert kinds == {"origin", "constant", "computed", "example", "unknown"}
    assert re.search(r"^# ", Path(page_figures.SOURCES).read_text("utf-8"))
