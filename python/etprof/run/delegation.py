"""Reads the export's delegation report: what is delegated, what is not and why, and from where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from etprof.base.records import Count, Name, Named, Record, read_record
from etprof.run.directory import DELEGATION_REPORT

if TYPE_CHECKING:
    from etprof.run.manifest import Manifest


class SourceLine(Record):
    """A line of the model's own Python code."""

    file: Name
    line: Count
    code: Name = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class Origin(Record):
    """The module and line that an operator was traced from."""

    module_path: Name = ""
    module_type: Name = ""
    source: SourceLine | None = None


class GraphOperator(Record):
    """One operator of the lowered graph."""

    name: Name
    operator: Name
    delegate: Count | None = None
    origin: Origin = Field(default_factory=Origin)
    shape: list[int] | None = None
    macs: Count | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    reason: Name | None = None
    instruction: Count | None = None
    inputs: tuple[Name, ...] = ()
    """Names of the graph's nodes that it reads."""
    permutation: tuple[Count, ...] | None = None
    """How it transposes: dimension i of the result is dimension permutation[i] of its input."""


class Prediction(Record):
    """Whether XNNPACK has an SME2 kernel for a node, and why or why not."""

    sme2: bool
    packed_type: Name | None = None
    reason: Name


class DelegateNode(Record):
    """One node of a delegate's own graph."""

    kind: Name
    operators: tuple[Name, ...] = ()
    attribution: Name = "unknown"
    macs: Count | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    prediction: Prediction | None = None
    inputs: tuple[Count, ...] = ()
    """Numbers of the values that it reads at run time, constants and single numbers apart."""
    output: Count | None = None
    permutation: tuple[Count, ...] | None = None


class Delegate(Record):
    """One call of a backend."""

    name: Name
    backend: Name
    instruction: Count | None = None
    nodes: tuple[DelegateNode, ...] = ()


class MethodReport(Record):
    """The report of one method."""

    operators: tuple[GraphOperator, ...] = ()
    delegates: tuple[Delegate, ...] = ()

    @property
    def has_data_flow(self) -> bool:
        """Whether it says which operator reads whose result; reports of etprof 0.1.0 do not."""
        nodes = (node for delegate in self.delegates for node in delegate.nodes)
        return any(each.inputs for each in self.operators) or any(
            node.output is not None for node in nodes
        )


class DelegationReport(Record):
    """`<model>.pte.delegation.json` as far as reports need it."""

    schema_version: Literal[1]
    model: Name
    methods: Named[MethodReport]


def find_method_report(run: Path, provenance: Manifest | None) -> MethodReport | None:
    """Reads the report of the method that `run` measured; None when the file is not there.

    Measuring copies it into the run directory. For runs without a copy it is looked for beside
    the program, and where the export puts it.
    """
    model = provenance.model if provenance else None
    places = [run / DELEGATION_REPORT]
    if model is not None and model.path:
        program = Path(model.path)
        report = f"{program.name}.{DELEGATION_REPORT}"
        places += [
            program.with_name(report),
            run / report,
            run.parent.parent / "artifacts" / report,
        ]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        return None
    report_document = read_record(DelegationReport, found, way_out="export the model again")
    method = model.method if model and model.method else "forward"
    return report_document.methods.get(method)
