"""`python -m tests.reports.page`: writes docs/tried_reports.md, the public reports that were tried."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.reports import kernels, layouts, public
from tests.reports.__main__ import REFUSED, REFUSED_IN_HALVES

PAGE: Final = Path(__file__).parents[2] / "docs" / "tried_reports.md"
_REPORT: Final = re.compile(r"([\w.-]+/[\w.-]+)#(\d+): (.+)")
_HEAD: Final = """# Public reports that were tried

People who deploy models report what went wrong: a wrong output, a crash, an operator that is missing.
etprof's tests have a small model of each report below, exported in fp32, fp16 and int8 with the
versions of [installing](installing.md). "Exported" means that the program gives what eager PyTorch
gives, at the thresholds of [the checks of an export](export.md#checks); operators that XNNPACK refuses stay
outside the delegate and are named. "Refused" means that no program exists, and that etprof names the
operator, its line and the way out. int8 is left out where nothing of the model can be quantised.

`python -m tests.reports` exports them all and prints how near each output is.

| report | what is special | result |
|---|---|---|
"""
_FOOT: Final = """
Beyond single reports, [a table](models.md#model-by-precision) has the zoo's models and 34 networks of
transformers in each precision, beside the float32 and the converted model.
"""


def page_text() -> str:
    """Returns the page as the models' own descriptions make it."""
    rows = []
    for module in (public, layouts, kernels):
        for model in module.INPUTS:
            match = _REPORT.match((model.__doc__ or "").strip())
            if match is None:
                raise ValueError(f"{model.__name__} begins with no report, as owner/name#1: text")
            repository, number, text = match[1], int(match[2]), match[3].rstrip(".")
            link = f"[{repository}#{number}](https://github.com/{repository}/issues/{number})"
            rows.append((repository.lower(), number, f"| {link} | {text} | {_outcome(model)} |"))
    lines = "\n".join(line for *_, line in sorted(rows))
    return f"{_HEAD}{lines}\n{_FOOT}"


def _outcome(model: type) -> str:
    if model.__name__ in REFUSED:
        return "refused"
    if model.__name__ in REFUSED_IN_HALVES:
        return "exported; refused in fp16 with the way out"
    return "exported"


if __name__ == "__main__":
    PAGE.write_text(page_text(), encoding="utf-8")
