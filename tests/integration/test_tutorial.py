"""The tutorial's commands, in order, as a stranger types them; what it shows is what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.tutorial_outputs import PAGE, blocks_of, quotations, quoted_lines

from etprof.base.errors import EtprofError
from etprof.targets.emulator.installation import locate
from tests.integration.test_action import setup_turn
from tests.page_figures import FIGURE


def test_the_tutorial_is_made_of_files_commands_and_outputs() -> None:
    """`sh` is run, `python` is saved, an output says which lines of what was printed it has."""
    blocks = blocks_of(PAGE.read_text("utf-8"))
    kinds = [block.language for block in blocks]
    assert set(kinds) == {"bash", "sh", "python", "", "text"}
    assert kinds.count("bash") == 1
    assert kinds.count("sh") > 6
    assert all(block.text.startswith("# ") for block in blocks if block.language == "python")
    assert all(bool(block.shown) == (block.language in {"", "text"}) for block in blocks)


def test_the_prose_rests_on_what_every_machine_prints() -> None:
    """U3-10: "13.8x" and "more than nine tenths"; elsewhere 7.2x and 86 %."""
    page = PAGE.read_text("utf-8")
    blocks = blocks_of(page)
    same_everywhere = "".join(block.text for block in blocks if block.shown and not block.is_timed)
    prose = page
    for block in blocks:
        prose = prose.replace(block.text, "")
    figures = [match.group() for match in FIGURE.finditer(prose)]
    assert figures
    assert [figure for figure in figures if figure not in same_everywhere] == []


def test_lines_are_quoted_by_how_they_begin_and_end() -> None:
    printed = "a head\n│ one │ 1 │  \n│ two │ 2 │\n│ three │ 3 │\nan end\n"
    assert quoted_lines(printed, "one .. two; an end") == "│ one │ 1\n│ two │ 2\n…\nan end\n"
    with pytest.raises(ValueError, match="'four' is not printed any more"):
        quoted_lines(printed, "four")


@pytest.mark.slow
def test_the_tutorials_commands_run_in_order(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """U6: there was no tutorial; this one is what CI does (issue 18.5)."""
    try:
        locate()
    except EtprofError as error:
        pytest.skip(str(error))
    with setup_turn(tmp_path_factory):
        made = list(quotations(PAGE.read_text("utf-8"), tmp_path))
    printed = {
        quotation.block.text: quotation.text for quotation in made if not quotation.block.is_timed
    }
    assert {page: page for page in printed} == printed, (
        "run `python -m docs.tutorial_outputs --write`"
    )
    speed_up, answers = (quotation.printed for quotation in made if quotation.block.is_timed)
    # What the prose says of times, on whatever machine: most of the time was the mean's.
    assert float(re.findall(r"speedup ([\d.]+)×", speed_up)[0]) > 2
    assert len(re.findall(r"^\| Is its .* share (?:higher|lower)\?", answers, re.MULTILINE)) == 3
