"""What README, CONTRIBUTING, docs/ and --help show: links lead somewhere, commands are understood."""

from __future__ import annotations

import argparse
import re
import shlex
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest

from etprof.base.errors import UsageError
from etprof.cli import COMMANDS, EPILOG, build_parser, load_command, main
from tests.page_commands import PAGES, commands_in, quoted_commands

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
BARE = ("compare", "export-llm", "history add", "import", "report")


def page_id(page: Path) -> str:
    return page.name


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(page.read_text()))
    return {title.strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    wrong = []
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert not wrong


def shown_commands() -> dict[str, set[str]]:
    """Every command that is shown to users, by where."""
    shown: dict[str, set[str]] = {}
    for quoted in quoted_commands():
        shown.setdefault(quoted.page, set()).add(quoted.text)
    for name in COMMANDS:
        module = load_command(name)
        help_text = f"{module.__doc__}\n{getattr(module, 'EXAMPLES', '')}"
        lines = (re.split(r"   +", line.strip())[0] for line in help_text.splitlines())
        shown[f"{name} --help"] = set(commands_in("\n".join(lines)))
    return shown


SHOWN = shown_commands()


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    return build_parser()


@pytest.mark.parametrize("place", SHOWN)
def test_shown_commands_are_understood(parser: argparse.ArgumentParser, place: str) -> None:
    for command in sorted(SHOWN[place]):
        words = [word.rstrip("…") or "x" for word in shlex.split(command, comments=True)]
        words = [word for word in words if word != "--help"]
        # A command may be named without what it takes, as in "`etprof compare` refuses them".
        bare = pytest.raises(UsageError, match="are required") if command in BARE else nullcontext()
        with bare:
            parser.parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_packages_of_a_fresh_machine_are_all_named(page: Path) -> None:
    """README's first command ended on Debian for want of Python's headers, which it did not name."""
    (headers,) = re.findall(
        r"apt install (\S+)\"", (ROOT / "cpp/python/CMakeLists.txt").read_text()
    )
    for listed in re.findall(r"apt install ([^`\n]+)", page.read_text()):
        packages = set(listed.split())
        if "python3-venv" in packages:
            assert packages >= {"g++", "git", headers}


def test_most_commands_are_shown_somewhere() -> None:
    """Guards the search above: a change of style must not make it find nothing."""
    assert sum(map(len, SHOWN.values())) > 100
    first_words = {command.split()[0] for commands in SHOWN.values() for command in commands}
    assert set(COMMANDS) <= first_words


def test_every_help_has_an_example() -> None:
    for name in COMMANDS:
        assert SHOWN[f"{name} --help"], name


def test_exit_codes_are_documented() -> None:
    from etprof.base import errors
    from etprof.history.connection import StoreError

    kinds = (*vars(errors).values(), StoreError)
    codes = {
        kind.exit_code
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, errors.EtprofError)
    }
    codes_of_lines = re.findall(r"^  ([\d, ]+)  \S", EPILOG, re.MULTILINE)
    documented = {int(code) for codes in codes_of_lines for code in codes.split(",")}
    assert codes | {0, 130, 141} <= documented


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_heading_is_one_level_below_the_one_before_at_most(page: Path) -> None:
    """The site's builder refuses it, in a lane that comes last."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert all(after <= before + 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("page", ["README.md", "docs/faq.md"])
def test_a_slow_fp16_is_no_surprise(page: str) -> None:
    """fp16 is the default, and on an x86 host it may be slower than fp32."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "x86" in text
    assert "etprof profile toy_cnn:fp32 --against toy_cnn:fp16 --threads 1" in text


@pytest.mark.parametrize("name", ["F5", "f5", "F2b"])
def test_docs_prints_the_section_of_a_finding(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new user read "F5" in every answer, and `etprof docs F5` was no page."""
    assert main(["docs", name]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.lower() == f"### {name}".lower()
    assert any(lines)
    assert not any(line.startswith("#") for line in lines)


def test_docs_knows_no_other_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "F99"]) == 2
    error = capsys.readouterr().err
    assert "no finding is called F99; there are F1, F2, F2b" in error
    assert "F13" in error


@pytest.mark.parametrize(
    "name", ["operators-outside-the-delegate", "Operators outside the delegate"]
)
def test_docs_prints_a_section_by_its_title_or_anchor(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["docs", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## Operators outside the delegate\n")
    assert "\n## " not in text


def test_a_section_that_links_to_another_says_how_to_print_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`etprof docs F5` said "see below", with nothing below it."""
    assert main(["docs", "F5"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    command = re.match(r"`etprof (docs \S+)` prints the section linked above\.$", last)
    assert command, last
    assert main(command[1].split()) == 0


def test_a_section_of_sections_has_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "delegation"]) == 0
    text = capsys.readouterr().out
    assert re.findall("^### (.*)$", text, re.MULTILINE) == ["F5", "F6", "F12", "F16", "F18"]
