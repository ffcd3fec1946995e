"""What people read is in plain words: phrases that strangers stumbled over stay out (U7)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.site.reference import commands_page, files_page

from etprof.base.units import count_of
from etprof.statistics.noise import Noise

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "etprof"
FORBIDDEN = {
    r"\b(rules?|checks?) (was|were) asked\b|\basked (and found nothing|were)\b": "checks found nothing",
    r"\boff the first\b": "slower (faster) than the first",
    r"what is compared with": "the baseline is what you compare with",
    r"\bleast (timed )?(inferences|time)\b": "inferences (time) in each launch, or more",
    r"\b1 (others|calls|operators|launches|blocks|runs|samples)\b": "1 other",
    r"([µnm]s|calls|\}|\bs) an inference\b(?! (of|takes))": "per inference",
    r"\b(is|are) told (as|of)\b": "is reported as",
    r"(distance|farther) from eager|(?<!against )\bfrom eager fp32": "SNR against eager fp32",
    r"\bsuch verdicts\b": "in etprof's own tests under such load, … verdicts were false",
    r"results go to|the passes\b.* on top|the target's own runner\)": "writes to; default runner",
}
"""What nobody should have to read, as a pattern, and what to say instead."""


def shown_by_the_package() -> Iterator[tuple[str, str]]:
    """Every text that the package may print; `{}` stands for what is filled in."""
    for module in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(module.read_text())
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
                 for part in node.values}  # fmt: skip
        inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
                yield module.name, "".join(map(str, parts))
            elif isinstance(getattr(node, "value", None), str) and id(node) not in inner:
                yield module.name, str(getattr(node, "value", ""))
    for template in sorted(PACKAGE.rglob("*.j2")):
        yield template.name, template.read_text()


def written() -> Iterator[tuple[str, str]]:
    """Every page of the documentation, and what `--help` says."""
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        yield page.name, page.read_text()
    yield "--help", commands_page()
    yield "schemas", files_page()


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    return [
        (place, " ".join(text.split())) for place, text in (*shown_by_the_package(), *written())
    ]


@pytest.mark.parametrize("phrase", FORBIDDEN, ids=list(FORBIDDEN.values()))
def test_no_one_reads_a_forbidden_phrase(texts: list[tuple[str, str]], phrase: str) -> None:
    pattern = re.compile(phrase, re.IGNORECASE)
    found = [f"{place}: {m[0]!r}" for place, text in texts if (m := pattern.search(text))]
    assert len(texts) > 2000
    assert not found, f"say {FORBIDDEN[phrase]!r}"


def test_the_patterns_find_what_was_written() -> None:
    """U7's own examples."""
    for text in (
        "13 other rules were asked and found nothing",
        "and the second half of the launches is -0.4 % off the first",
        "What is compared with, and what is compared",
        "least inferences a block",
        "1 others",
        "distance from eager fp32 67.9 dB",
        "2 of 120 such verdicts on a program against itself were false",
        "0 timed launches, at least 0 ns; warm-up, loading and the passes come on top",
    ):
        assert any(re.search(phrase, text, re.IGNORECASE) for phrase in FORBIDDEN)


def test_a_count_of_one_has_a_noun_of_one_and_a_drift_has_a_direction() -> None:
    assert count_of(1, "other") == "1 other"
    noise = Noise(between=0.01, within=0.01, drift=-0.004, fastest=1.0, slowest=2.0)
    assert noise.trend == "0.4 % faster than the first"
