"""How many instructions each operator took inside its delegate's library, counted one by one.

Counted under emulation and in one thread. They are no time: a CPU runs several at once, and waits
for memory between others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from etprof.base.atomic import write_json
from etprof.base.records import Count, Name, Named, Record, read_record
from etprof.run.runner_result import SmeState

BEFORE: Final = "before the first operator"
"""What a delegate call does to set its operators up."""


class OperatorInstructions(Record):
    """One operator of a delegate, in one inference."""

    name: Name
    place: Count
    """Among all operators of an inference, those outside delegates too, from 1."""
    functions: Named[Count]
    """Instructions of each function of the library that ran for it."""

    @property
    def total(self) -> int:
        """Instructions of all of them."""
        return sum(self.functions.values())


class InstructionCounts(Record):
    """What one inference took, in order of execution."""

    schema_version: Literal[1] = 1
    sme: SmeState
    library: Name
    """The file whose instructions were counted; those of no other were."""
    library_sha256: Name
    executions: Count
    """Inferences that were held against one another."""
    is_steady: bool
    """Whether every operator took the same in each of them."""
    operators: tuple[OperatorInstructions, ...]
    setup: Named[Count]
    """What all delegate calls took before their first operator, by function."""

    @property
    def total(self) -> int:
        """Instructions of all operators, and of what comes before them."""
        return sum(each.total for each in self.operators) + sum(self.setup.values())


def read_instructions(path: Path) -> InstructionCounts:
    """Reads and checks the file; raises InputFileError."""
    return read_record(InstructionCounts, path, way_out="count the instructions again")


def write_instructions(counts: InstructionCounts, path: Path) -> None:
    """Writes the file at once."""
    write_json(path, counts.model_dump(mode="json"))
