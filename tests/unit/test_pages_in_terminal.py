"""What `etprof docs` prints, of a folder of pages whose every line is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.world.host import etprof

if TYPE_CHECKING:
    from tests.world.host import Done

ROOT = Path(__file__).parents[2]
FINDINGS = """\
# Findings

What findings say, and [thresholds](#thresholds).

## Products

### F1

Too few casts; see [why not SME2](#why-not-sme2) and [thresholds](#thresholds),
[thresholds](#thresholds) again, and [a page](#elsewhere).

### F2b

Not slow.

## Why not: SME2?

All of it.

"""
THRESHOLDS = "## Thresholds\n\nOf all, such as [F1](#f1).\n"
ALL_NAMES = "`etprof docs` names every page, and `etprof docs findings` has all findings"


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("zoo", "README", "own_model", "export"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nOf {name}.\n", "utf-8")
    (folder / "findings.md").write_text(FINDINGS + THRESHOLDS, "utf-8")
    monkeypatch.setattr("etprof.cli.docs._FOLDERS", (tmp_path / "absent", folder))
    return folder


def docs(pages: Path, *words: str) -> Done:
    return etprof(pages.parent, "docs", *words)


def test_without_a_name_all_pages_are_named_by_the_alphabet(pages: Path) -> None:
    done = docs(pages)
    assert done.exit_code == 0
    assert done.stdout == ("export, findings, own_model, zoo\nOne of them: etprof docs own_model\n")


def test_names_are_broken_at_80_columns(pages: Path) -> None:
    name = "p" * (80 - len("export, findings, own_model, ,"))
    (pages / f"{name}.md").write_text("", "utf-8")
    first, second, _ = docs(pages).stdout.splitlines()
    assert (len(first), second) == (80, "zoo")


@pytest.mark.parametrize("name", ["own_model", "own_model.md", "docs/own_model.md"])
def test_a_page_is_printed_as_it_is(pages: Path, name: str) -> None:
    done = docs(pages, name)
    assert (done.exit_code, done.stdout) == (0, "# own_model\n\nOf own_model.\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f2B", "### F2b\n\nNot slow.\n"),
        ("why-not-sme2", "## Why not: SME2?\n\nAll of it.\n"),
        ("Why not: SME2?", "## Why not: SME2?\n\nAll of it.\n"),
        (
            "thresholds",
            f"{THRESHOLDS}\n`etprof docs f1` prints the section linked above.\n",
        ),
        (
            "F1",
            FINDINGS[FINDINGS.index("### F1") : FINDINGS.index("### F2b")]
            + "`etprof docs why-not-sme2` prints the section linked above.\n"
            "`etprof docs thresholds` prints the section linked above.\n",
        ),
    ],
)
def test_a_section_ends_before_the_next_and_says_where_its_links_lead(
    pages: Path, name: str, text: str
) -> None:
    done = docs(pages, name)
    assert (done.exit_code, done.stdout, done.stderr) == (0, text, "")


def test_a_section_has_its_subsections(pages: Path) -> None:
    text = docs(pages, "products").stdout
    section = FINDINGS[FINDINGS.index("## Products") : FINDINGS.index("## Why")]
    assert text.startswith(section)
    assert "## Why" not in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("F3", "no finding is called F3; there are F1, F2b"),
        (
            "F1 and more",
            f"no page is called 'F1 and more'; {ALL_NAMES}",
        ),
        ("exports", "no page is called 'exports'; did you mean 'export'?"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(
    pages: Path, name: str, reason: str
) -> None:
    done = docs(pages, name)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"etprof: {reason}\n")


def test_without_findings_their_names_are_no_pages(pages: Path) -> None:
    (pages / "findings.md").unlink()
    assert "no page is called 'F1'" in docs(pages, "F1").stderr


def test_without_any_page_the_installation_is_to_blame(pages: Path) -> None:
    for page in pages.iterdir():
        page.unlink()
    (pages / "README.md").write_text("the list of pages", "utf-8")
    done = docs(pages)
    assert done.stdout == ""
    assert done.stderr == "etprof: the documentation was not installed; install etprof again\n"


def test_the_pages_are_those_of_the_repository(tmp_path: Path) -> None:
    page = ROOT / "docs/export.md"
    assert etprof(tmp_path, "docs", "export").stdout == page.read_text("utf-8")
