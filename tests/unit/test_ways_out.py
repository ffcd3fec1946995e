"""A-D17: every command and flag of etprof that a message names exists."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from etprof.cli import COMMANDS, build_parser

PACKAGE = Path(__file__).parents[2] / "python" / "etprof"
TOLD = re.compile(r"`etprof ([a-z]+)([^`]*)`")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def texts() -> Iterator[tuple[str, str]]:
    """Every text of the package with its module; `{}` stands for what is filled in."""
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
                yield module.name, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield module.name, node.value


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    found = {flag for action in parser._actions for flag in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {flag for each in action.choices.values() for flag in flags_of(each)}
    return found


@pytest.mark.slow
def test_commands_and_their_flags_exist() -> None:
    """`--resume` was told to users of commands that have none."""
    told = {(m[1], flag) for _, text in texts() for m in TOLD.finditer(text)
            for flag in (FLAG.findall(m[2]) or [""])}  # fmt: skip
    assert len(told) > 20
    assert {command for command, _ in told} <= set(COMMANDS)
    wrong = [(c, f) for c, f in told if f and f not in flags_of(build_parser(c))]
    assert not wrong


@pytest.mark.parametrize("flag", ["--kernel-trace"])
def test_no_message_names_a_flag_of_the_runner(flag: str) -> None:
    """`--kernel-trace` was told to people, whose commands have no such flag."""
    assert not [(name, text) for name, text in texts() if flag in text and name != "request.py"]
