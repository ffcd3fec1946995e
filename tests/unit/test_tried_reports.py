"""The page of public reports that were tried is made from the models that try them."""

from __future__ import annotations

from tests.reports.page import PAGE, page_text


def test_the_page_lists_each_report_once() -> None:
    text = page_text()
    assert PAGE.read_text(encoding="utf-8") == text, "write it by `python -m tests.reports.page`"
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert len(rows) == len({row.partition("]")[0] for row in rows}) >= 40
    outcomes = {row.rsplit(" | ", 1)[1] for row in rows}
    assert outcomes == {
        "exported |", "refused |", "exported; refused in fp16 with the way out |",
    }  # fmt: skip
