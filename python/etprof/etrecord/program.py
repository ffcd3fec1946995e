"""Reads a program that etprof did not export, with the ETRecord that was written beside it.

ExecuTorch's own tools cannot tell which module an XNNPACK operator came from: the delegate's map in
the ETRecord is empty. The program's serialized XNNPACK graphs and the ETRecord's graph carry the
same debug handles, so together they say as much as the export itself, save for the partitioner's
reasons and the memory plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etprof.base.errors import InputFileError
from etprof.base.files import MOST_PROGRAM_BYTES, hash_file, read_bounded
from etprof.base.text import clean
from etprof.etrecord import archive
from etprof.run.delegation import Delegate, DelegationReport, GraphOperator, MethodReport
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from etprof.etrecord.graph import Graph
    from etprof.export.operators import LoweredMethod

_NO_HANDLE = 2**16 - 1
"""In a delegate's graph: the delegate put the node in."""
_EDGE_PROGRAM = "edge_dialect_exported_program"
NOT_RECORDED = "not recorded: an ETRecord has no reasons of the partitioner"


def find_etrecord(pte: Path) -> Path | None:
    """Returns the ETRecord beside a program: `x.pte.etrecord` or `x.etrecord`; None without one."""
    named = (pte.with_name(f"{pte.name}.etrecord"), pte.with_suffix(".etrecord"))
    return next((path for path in named if path.is_file()), None)


def is_own(pte: Path, etrecord: Path) -> bool:
    """Whether etprof's export wrote this ETRecord: its manifest beside the program has its hash."""
    manifest = load_export_manifest(pte)
    identity = None if manifest is None else manifest.etrecord
    return identity is not None and identity.sha256 == hash_file(etrecord)


def decode_program(pte: Path) -> Any:  # noqa: ANN401 - ExecuTorch's own type
    """Returns what the program holds; raises InputFileError when the file cannot be read."""
    from etprof.export import upstream

    with upstream.quiet_upstream():
        return _read(
            pte, lambda: upstream.deserialize_pte_binary(read_bounded(pte, MOST_PROGRAM_BYTES))
        )


def describe_program(
    pte: Path,
    etrecord: Path,
    content: Any = None,  # noqa: ANN401 - ExecuTorch's own type
) -> DelegationReport:
    """Returns the delegation report of a program that etprof did not export.

    `content` is what `decode_program` made of it, where that is at hand already. Raises InputFileError when a file cannot be read or the two do not belong together.
    """
    from etprof.export import delegation, memory_plan, upstream

    with upstream.quiet_upstream():
        record = read_etrecord(etrecord)
        content = content or decode_program(pte)
        methods = _read(pte, lambda: _describe_methods(content, record, pte, etrecord))
        ptd = pte.with_suffix(".ptd")
        external = ptd if ptd.is_file() else None
        size = _read(pte, lambda: memory_plan.measure_program(pte, content, external))
    return DelegationReport(
        model=pte.stem,
        prediction_source=delegation.describe_sources(methods),
        size=size,
        methods=methods,
    )


def find_program(etrecord: Path) -> Path | None:
    """Returns the program beside an ETRecord, whose name says so; None without one."""
    named = (etrecord.with_suffix(""), etrecord.with_suffix(".pte"))
    return next((path for path in named if path.suffix == ".pte" and path.is_file()), None)


def describe_etrecord(etrecord: Path, calls: Mapping[int, str]) -> DelegationReport:
    """Returns what an ETRecord alone says of a program: every operator, and its instruction.

    `calls` are the instructions that called a delegate, with its backend, as an ETDump has them: an
    ETRecord has neither, nor the delegates' own graphs. Raises InputFileError as `read_etrecord` does.
    """
    from etprof.export import upstream

    with upstream.quiet_upstream():
        record = read_etrecord(etrecord)
        methods = {
            name: _describe_recorded(graph, record.handles[name], calls)
            for name, graph in record.graphs.items()
            if name in record.handles
        }
    return DelegationReport(model=clean(etrecord.stem), methods=methods)


def _describe_recorded(
    graph: Any,  # noqa: ANN401 - as `call_nodes` takes it
    handles: Mapping[int, list[int]],
    calls: Mapping[int, str],
) -> MethodReport:
    from etprof.export.operators import describe_node

    nodes, operators = _by_handle(graph), list[GraphOperator]()
    numbers = {call: number for number, call in enumerate(sorted(calls.keys() & handles.keys()))}
    for instruction, instruction_handles in sorted(handles.items()):
        graph_nodes = [
            node
            for node in (_take(nodes, handle) for handle in instruction_handles)
            if node is not None
        ]
        number = numbers.get(instruction)
        reason = NOT_RECORDED if number is None else None
        described = [describe_node(node, number, reason) for node in graph_nodes]
        if number is None:
            described = [
                operator.model_copy(update={"instruction": instruction}) for operator in described
            ]
        operators += described
    delegates = tuple(
        Delegate(name=f"lowered_module_{number}", backend=calls[call], instruction=call)
        for call, number in numbers.items()
    )
    return MethodReport(operators=tuple(operators), delegates=delegates)


def _by_handle(graph: Any) -> dict[int | None, list[Any]]:  # noqa: ANN401 - as `call_nodes` takes it
    from etprof.export.operators import call_nodes

    nodes: dict[int | None, list[Any]] = {}
    for node in call_nodes(graph):
        nodes.setdefault(node.meta.get("debug_handle"), []).append(node)
    return nodes


@dataclass(frozen=True)
class EtRecord:
    """What an ETRecord says of a program."""

    graphs: dict[str, Graph]
    """By method."""
    handles: dict[str, dict[int, list[int]]]
    """Debug handles of each instruction, by method."""


def read_etrecord(path: Path) -> EtRecord:
    """Reads an ETRecord as data; raises InputFileError for a file that an export did not write."""
    from etprof.etrecord.graph import GraphError, check_expressions, read_graph, read_handles

    graphs, name = {}, archive.HANDLE_MAP
    with archive.open_parts(path) as record_parts:
        try:
            handles = read_handles(record_parts.read_json(name))
            for name in record_parts.graph_names():
                document = record_parts.read_json(name)
                check_expressions(document)
                if name.startswith(_EDGE_PROGRAM):
                    graphs[_method_of(name)] = read_graph(document)
        except GraphError as error:
            raise archive.refusal(path, f"{name}: {error}") from None
    return EtRecord(graphs, handles)


def _method_of(part_name: str) -> str:
    """Returns a part's method; the part of an older ExecuTorch has the program's only one."""
    return part_name.removeprefix(_EDGE_PROGRAM).removeprefix("/") or "forward"


def _describe_methods(
    content: Any,  # noqa: ANN401 - ExecuTorch's own types
    record: EtRecord,
    pte: Path,
    etrecord: Path,
) -> dict[str, MethodReport]:
    from etprof.export import delegation

    def described(plan: Any) -> MethodReport:  # noqa: ANN401 - ExecuTorch's own type
        report = delegation.describe_method(_match(content, plan, record), None)
        _check_belongs(plan, report, record, pte, etrecord)
        return report

    return {
        plan.name: described(plan)
        for plan in content.program.execution_plan
        # A constant that a model gives as a method has no instructions, and is in no graph.
        if plan.chains[0].instructions and _is_recorded(plan.name, record, pte, etrecord)
    }


def _check_belongs(
    plan: Any,  # noqa: ANN401 - ExecuTorch's own type
    report: MethodReport,
    record: EtRecord,
    pte: Path,
    etrecord: Path,
) -> None:
    """Raises InputFileError where the ETRecord's handles are not of these instructions."""
    handles = record.handles[plan.name]
    instructions = len(plan.chains[0].instructions)
    problem = None
    if handles and max(handles) >= instructions:
        problem = f"it has {max(handles) + 1} instructions or more, the program {instructions}"
    for delegate in report.delegates:
        delegate_handles = {node.debug_handle for node in delegate.nodes} - {None, _NO_HANDLE}
        if delegate_handles - {*handles.get(delegate.instruction or 0, ())}:
            problem = f"{delegate.name} of the program computes operators that it does not have"
    if problem is not None:
        raise InputFileError(
            f"{etrecord} does not belong to {pte}: {plan.name!r}: {problem}; give --etrecord the "
            "file of the same export"
        )


def _read(path: Path, decode: Any) -> Any:  # noqa: ANN401 - ExecuTorch's own types
    try:
        return decode()
    except InputFileError:
        raise
    # ExecuTorch's readers raise whatever a damaged file leads them to.
    except Exception as error:
        raise InputFileError(f"cannot read {path}: {type(error).__name__}: {error}") from error


def _is_recorded(name: str, record: EtRecord, pte: Path, etrecord: Path) -> bool:
    """Returns True; raises InputFileError when the ETRecord does not have the method."""
    if name not in record.graphs or name not in record.handles:
        raise InputFileError(
            f"{etrecord} has no method {name!r}: it does not belong to {pte}; give --etrecord "
            "the file of the same export"
        )
    return True


def _match(content: Any, plan: Any, record: EtRecord) -> LoweredMethod:  # noqa: ANN401
    """Returns one method's operators and delegates, joined by debug handles.

    Operators that one operator was decomposed into share its handle; the graph's nodes of a handle
    are then taken in their order, and the last one stands for those that the graph does not have.
    """
    from etprof.export.operators import LoweredDelegate, LoweredMethod, describe_node

    nodes = _by_handle(record.graphs[plan.name])
    handles = record.handles[plan.name]
    method = LoweredMethod([], [])
    for instruction, arguments in enumerate(
        step.instr_args for step in plan.chains[0].instructions
    ):
        handle_nodes = [_take(nodes, handle) for handle in handles.get(instruction, [])]
        graph_nodes = [node for node in handle_nodes if node is not None]
        if not hasattr(arguments, "delegate_index"):
            kernel = _kernel_name(plan, arguments)
            described = [describe_node(node, None, NOT_RECORDED) for node in graph_nodes]
            method.operators += [
                _as_kernel(operator, kernel, instruction) for operator in described
            ]
            continue
        number = len(method.delegates)
        delegate = plan.delegates[arguments.delegate_index]
        blob = bytes(content.program.backend_delegate_data[delegate.processed.index].data)
        inside = [describe_node(node, number, None) for node in graph_nodes]
        name = f"lowered_module_{number}"
        method.delegates.append(
            LoweredDelegate(name, delegate.id, blob, graph_nodes, inside, instruction)
        )
        method.operators += inside
    return method


def _kernel_name(plan: Any, arguments: Any) -> str:  # noqa: ANN401 - ExecuTorch's own types
    """Returns what an instruction runs, such as `mul.Scalar_out`; empty for a move or a jump."""
    if not hasattr(arguments, "op_index"):
        return ""
    operator = plan.operators[arguments.op_index]
    return f"{operator.name.rpartition('::')[2]}.{operator.overload}"


def _as_kernel(operator: GraphOperator, kernel: str, instruction: int) -> GraphOperator:
    """Returns a graph's operator as the kernel that runs, which may be a part of it."""
    same = operator.operator.rpartition("::")[2].split(".")[-2:][0] == kernel.partition(".")[0]
    macs = operator.macs if same else None
    return operator.model_copy(
        update={"operator": clean(kernel), "macs": macs, "instruction": instruction}
    )


def _take(nodes: dict[int | None, list[Any]], handle: int) -> Any:  # noqa: ANN401 - a node or None
    """Returns the next node of a handle, the last one again and again, or None."""
    queue = nodes.get(handle, [])
    return queue.pop(0) if len(queue) > 1 else next(iter(queue), None)
