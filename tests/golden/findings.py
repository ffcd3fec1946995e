"""What every rule says where it is right to speak, word by word."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

from tests.golden.runs import rounded
from tests.unit.test_finding_cases import ALL

FINDINGS_FILE: Final = "findings.txt"


def describe_findings(folder: Path) -> str:
    """A paragraph for each finding: all of its fields that are not empty."""
    lines: list[str] = []
    for rule, case in ALL.items():
        place = folder / rule
        place.mkdir()
        for finding in case.fires(place).findings:
            if finding.rule == rule:
                lines.append(f"# {rule}")
                lines += [
                    f"{field.name}: {rounded(_words(value))}"
                    for field in dataclasses.fields(finding)
                    if (value := getattr(finding, field.name))
                ]
    return "\n".join(lines).replace(str(folder), "FOLDER") + "\n"


def _words(value: object) -> str:
    """Evidence and intervals by their values, whatever their classes are called."""
    if isinstance(value, tuple):
        return " | ".join(map(_words, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ": ".join(map(str, dataclasses.astuple(value)))
    return str(value)
