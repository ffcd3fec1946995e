"""The delegation report, written by the export: what is delegated, what is not and why, from where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pydantic import Field

from etprof.base.records import Count, Name, Named, Record, read_record
from etprof.run.directory import DELEGATION_REPORT, name_of_program

if TYPE_CHECKING:
    from collections.abc import Collection

    from etprof.run.manifest import Manifest


NO_RULE: Final = "the partitioner has no rule for this operator"
"""Why an operator is not delegated, where the backend has nothing for it; else its own words."""
NO_REASON: Final = "the partitioner gives no reason"
NOT_ASKED: Final = "no partitioner: the backend is portable"


class SourceLine(Record):
    """A line of the model's own Python code."""

    file: Name
    line: Count
    function: Name = ""
    code: Name = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class Origin(Record):
    """The module and line that an operator was traced from; the root module's path is empty."""

    module_path: Name = ""
    module_type: Name = ""
    source: SourceLine | None = None

    @property
    def location(self) -> str | None:
        """Where people find it, such as `features.2.conv (net.py:14)`; None where nobody says."""
        path, source = self.module_path, str(self.source or "")
        return f"{path} ({source})" if path and source else path or source or None


class GraphOperator(Record):
    """One operator of the lowered graph."""

    name: Name
    """Name of the graph's node; unique in a method."""
    operator: Name
    """ATen's name without namespace, such as `convolution.default`."""
    debug_handle: int | None = None
    delegate: Count | None = None
    """Number of the delegate call that contains it, in execution order."""
    origin: Origin = Field(default_factory=Origin)
    shape: list[int] | None = None
    macs: Count | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    held_bytes: Count | None = None
    """Of weights, buffers and constants among its inputs, as stored; of a table the rows that it takes.
    None in reports of earlier versions."""
    is_quantization: bool = False
    """It only turns floats into integers or back; a delegate folds it into its neighbours."""
    is_cast: bool | None = None
    """Whether its result has another data type than its one input; None in reports of earlier versions."""
    reason: Name | None = None
    """Why it is not delegated."""
    instruction: Count | None = None
    """Its instruction in the program; None inside delegates, and for views that cost nothing."""
    inputs: tuple[Name, ...] = ()
    """Names of the graph's nodes that it reads."""
    permutation: tuple[Count, ...] | None = None
    """How it transposes: dimension i of the result is dimension permutation[i] of its input."""
    readers: Count | None = None
    """Places that read its result: operators, delegate calls, and the method's caller."""
    traced: Name | None = None
    """The node of the traced model that it was decomposed from; several operators may share one."""
    traced_as: Name | None = None
    """What that node calls, such as `aten.scaled_dot_product_attention.default`."""
    rewrites: tuple[Name, ...] = ()
    """Rewrites that would replace it, or what it was decomposed from, and were not asked for."""

    @property
    def writes_cache(self) -> bool:
        """Whether it puts new entries into a buffer, as key-value caches get theirs."""
        return any(marker in self.operator for marker in ("index_put", "index_copy", "cache"))


class StepBytes(NamedTuple):
    """Bytes that one execution of a method has to read, whatever its input is."""

    weights: int
    """With their scales, constants, and rows of tables."""
    caches: int

    @property
    def total(self) -> int:
        """Both."""
        return self.weights + self.caches


class Prediction(Record):
    """Whether the backend has an SME2 kernel for a node, and why or why not."""

    sme2: bool | None
    """None where the backend's tables lack the node's kind or types."""
    packed_type: Name | None = None
    """The type in the ETDump's operator name once SME2 is used: `PF32`, `PF16`, `PQS8`, `QP8`."""
    reason: Name


class DelegateNode(Record):
    """One node of a delegate's own graph."""

    index: Count = 0
    kind: Name
    debug_handle: int | None = None
    types: tuple[Name, ...] = ()
    """Of its inputs and of its output."""
    operators: tuple[Name, ...] = ()
    attribution: Name = "unknown"
    origins: tuple[Origin, ...] = ()
    macs: Count | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    prediction: Prediction | None = None
    inputs: tuple[Count, ...] = ()
    """Numbers of the values that it reads at run time, constants and single numbers apart."""
    output: Count | None = None
    permutation: tuple[Count, ...] | None = None
    readers: Count | None = None
    """Nodes that read its output, and the delegate's caller where that does."""
    sme2_precisions: tuple[Name, ...] | None = None
    """Precisions in which the backend has an SME2 kernel for it; None for what never has one."""
    sme2_rewrites: tuple[Name, ...] = ()
    """Rewrites that were not requested and would give it weights that SME2 takes."""


class Delegate(Record):
    """One call of a backend."""

    name: Name
    backend: Name
    instruction: Count | None = None
    blob_bytes: Count | None = None
    """Its graph, without weights."""
    weight_bytes: Count | None = None
    """Of the constants that it reads; what two delegates read counts in both. None where its
    backend does not say."""
    nodes: tuple[DelegateNode, ...] = ()


class MethodSummary(Record):
    """The totals of one method; shares are of multiply-accumulates."""

    delegate_calls: Count
    delegated_operators: Count
    undelegated_operators: Count
    delegated_operator_share: float | None
    macs: Count
    delegated_macs_share: float | None
    predicted_sme2_macs_share: float | None
    """None where a node that works has no prediction, or an unknown one."""


class PlannedTensor(Record):
    """A tensor in a planned arena."""

    node: Name
    module_path: Name
    arena: Count
    offset_bytes: Count
    size_bytes: Count
    first_use: Count
    """Position in the method's execution order; inclusive like `last_use`."""
    last_use: Count


class MemoryPlan(Record):
    """The planned memory of one method; what delegates allocate themselves is not in it."""

    arena_bytes: tuple[Count, ...]
    """Size of each arena, as the runtime allocates it."""
    peak_live_bytes: Count
    """Bytes of tensors alive at the worst moment; below the arenas' sum by fragmentation."""
    peak_node: Name | None
    unshared_bytes: Count | None = None
    """What the planner `naive` takes: every tensor its own place, whichever planner was used."""
    tensors_at_peak: tuple[PlannedTensor, ...]
    """The largest ones, at most ten."""


class ProgramSize(Record):
    """Bytes of a program by purpose; they add up to the file."""

    total_bytes: Count
    program_bytes: Count
    """The FlatBuffer: operators, memory plan, metadata."""
    delegate_bytes: Count
    """The graphs of the delegates, without their weights."""
    constant_bytes: Count
    """Weights: of delegates (named data) and of operators outside them."""
    padding_bytes: int
    external_bytes: Count
    """The `.ptd` file beside the program; not part of the total."""
    external_weight_bytes: Count | None = None
    """Weights in it, with the padding between them; the rest names them."""


class MethodReport(Record):
    """The report of one method."""

    summary: MethodSummary | None = None
    operators: tuple[GraphOperator, ...] = ()
    """Inside and outside of delegates, in execution order."""
    delegates: tuple[Delegate, ...] = ()
    memory: MemoryPlan | None = None

    @property
    def step_bytes(self) -> StepBytes | None:
        """What one execution reads of what the program holds; None where a report does not say it.

        A cache counts whole: once where it is written into and handed on.
        """
        counted = [operator for operator in self.operators if not operator.is_quantization]
        if not counted or any(operator.held_bytes is None for operator in counted):
            return None
        caches = sum(operator.held_bytes or 0 for operator in counted if operator.writes_cache)
        return StepBytes(sum(operator.held_bytes or 0 for operator in counted) - caches, caches)

    def without_rewrites(self, names: Collection[str]) -> MethodReport:
        """Returns the report as if its operators had none of these rewrites."""

        def rest(rewrites: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name for name in rewrites if name not in names)

        operators = tuple(
            operator.model_copy(update={"rewrites": rest(operator.rewrites)})
            for operator in self.operators
        )
        delegates = tuple(
            delegate.model_copy(
                update={
                    "nodes": tuple(
                        node.model_copy(update={"sme2_rewrites": rest(node.sme2_rewrites)})
                        for node in delegate.nodes
                    )
                }
            )
            for delegate in self.delegates
        )
        return self.model_copy(update={"operators": operators, "delegates": delegates})

    @property
    def has_data_flow(self) -> bool:
        """Whether it says which operator reads whose result; reports of etprof 0.1.0 do not."""
        nodes = (node for delegate in self.delegates for node in delegate.nodes)
        return any(operator.inputs for operator in self.operators) or any(
            node.output is not None for node in nodes
        )


class DelegationReport(Record):
    """`<model>.pte.delegation.json`: what is delegated, what is not and why."""

    schema_version: Literal[1] = 1
    model: Name
    backend: Name | None = None
    """None, as the precision, for a program that etprof did not export."""
    precision: Name | None = None
    prediction_source: Name | None = None
    size: ProgramSize | None = None
    methods: Named[MethodReport]


def find_method_report(
    run: Path, provenance: Manifest | None, program: str = ""
) -> MethodReport | None:
    """Reads the report of the method that `run` measured; None when the file is not there.

    `program` is what experiments call it. Measuring copies it into the run directory. For runs of
    etprof 0.1 without a copy it is looked for beside the program, and where the export puts it:
    what is there now may be of another.
    """
    model = provenance.every_program[program].model if provenance else None
    candidates = [run / name_of_program(DELEGATION_REPORT, program)]
    if provenance is not None and provenance.schema_version == 1 and model and model.path:
        path = Path(model.path)
        report = f"{path.name}.{DELEGATION_REPORT}"
        candidates += [
            path.with_name(report),
            run / report,
            run.parent.parent / "artifacts" / report,
        ]
    report_path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if report_path is None:
        return None
    method = model.method if model and model.method else "forward"
    return read_delegation(report_path).methods.get(method)


def read_delegation(path: Path) -> DelegationReport:
    """Reads the report of all methods; raises InputFileError for a damaged one."""
    return read_record(DelegationReport, path, way_out="export the model again and measure it")
