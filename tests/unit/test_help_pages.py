"""Help pages fit 80 columns, begin with what most people need, and keep commands whole."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from etprof.cli import COMMANDS, build_parser
from etprof.cli.parser import CommandParser

MOST_IN_ONE_LIST = 10
"""Flags that people still read through."""
MOST_COMMON = 5


def parser_of(*words: str) -> argparse.ArgumentParser:
    parser = build_parser(words[0])
    for word in words:
        (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = subparsers.choices[word]
    return parser


def all_pages() -> list[tuple[str, ...]]:
    actions = [a for a in parser_of("history")._actions if a.dest == "action" or a.choices]
    names = next(list(a.choices) for a in actions if isinstance(a, argparse._SubParsersAction))
    return [*((name,) for name in COMMANDS), *(("history", name) for name in names)]


def page_at(monkeypatch: pytest.MonkeyPatch, columns: int, parser: argparse.ArgumentParser) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    return parser.format_help()


@pytest.mark.parametrize("columns", [80, 60, 200])
@pytest.mark.parametrize("words", all_pages(), ids=" ".join)
def test_a_page_fits_its_terminal(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], columns: int
) -> None:
    page = page_at(monkeypatch, columns, parser_of(*words))
    # What has no blank, such as a list of choices or a path, is not broken.
    too_long = [line for line in page.splitlines() if len(line) > min(columns, 100)]
    assert not [line for line in too_long if columns >= 80 or " " in line.strip()]


def test_the_first_page_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_at(monkeypatch, 80, build_parser(""))
    assert max(map(len, page.splitlines())) <= 80
    assert "  129, 143  ended by SIGHUP or SIGTERM\n" in page


@pytest.mark.parametrize("words", all_pages(), ids=" ".join)
def test_many_flags_have_groups_and_the_common_ones_come_first(words: tuple[str, ...]) -> None:
    parser = parser_of(*words)
    parser.format_help()
    shown = [
        (group.title, [a for a in group._group_actions if a.help != argparse.SUPPRESS])
        for group in parser._action_groups
    ]
    with_flags = [(title, flags) for title, flags in shown if any(a.option_strings for a in flags)]
    assert with_flags[-1][0] == "help", "--help and --debug end the page"
    own = with_flags[:-1]
    assert all(len(flags) <= MOST_IN_ONE_LIST for _, flags in own)
    # An action of `history` has its own flags first, and what all actions have behind them.
    if len(words) == 1 and sum(len(flags) for _, flags in own) > MOST_IN_ONE_LIST:
        assert own[0][0] == "common"
        assert len(own[0][1]) <= MOST_COMMON
        assert "options" not in dict(own), "a flag outside every group"


def test_each_word_of_a_paragraph_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in all_pages():
        parser = parser_of(*words)
        page = page_at(monkeypatch, 80, parser)
        text = f"{parser.description} {parser.epilog or ''}"
        assert set(text.split()) - {"%(default)s"} <= set(page.split()) | {"\\"}, words


def parser_with(text: str) -> CommandParser:
    return CommandParser(prog="etprof x", description=text)


def test_a_long_command_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    command = (
        "etprof profile llm.pte --generate 64 --tokenizer tokenizer.json --prompt 'Once upon a time' "
        "--threads 1"
    )
    page = page_at(monkeypatch, 80, parser_with(f"Reads.\n\nexamples:\n  {command}\n"))
    pasted = page[page.index("  etprof") : page.index("\n\nhelp:")]
    assert pasted.count("\n") == 1
    assert all(line.endswith(" \\") for line in pasted.splitlines()[:-1])
    # As a shell reads it.
    assert shlex.split(pasted.replace("\\\n", "")) == shlex.split(command)


def test_meanings_of_a_list_stay_in_their_column(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "Writes:\n"
        "  one.json    every trial, step and reason; a search that was stopped continues from there\n"
        "              and ends where it would have ended\n"
        "  two.py      short\n"
    )
    page = page_at(monkeypatch, 60, parser_with(text))
    lines = page[page.index("  one.json") : page.index("\n\nhelp:")].splitlines()
    assert [line[:14].strip() for line in lines] == ["one.json", "", "", "two.py"]
    assert all(line[13] == " " and line[14] != " " for line in lines)
    assert " ".join(" ".join(line[14:] for line in lines).split()) == re.sub(
        r"\s+", " ", "every trial, step and reason; a search that was stopped continues from there "
        "and ends where it would have ended short",
    )  # fmt: skip


def test_code_in_backticks_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Sixteen letters a word, and so on and so forth until `etprof emulator setup` is whole."
    assert "`etprof emulator setup`" in page_at(monkeypatch, 70, parser_with(text))
    assert "`etprof emulator setup`" in page_at(monkeypatch, 74, parser_with(text))


def test_few_flags_are_named_in_the_usage_and_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = CommandParser(prog="etprof x")
    for letter in "abcd":
        parser.add_argument(f"--{letter}")
    parser.add_argument("file")
    assert "[--d D] file" in page_at(monkeypatch, 80, parser)
    parser.add_argument("--e")
    assert parser.format_help().startswith("usage: etprof x [FLAGS] file\n")
