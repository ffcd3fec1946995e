"""Reads a program that etprof did not export, with the ETRecord that was written beside it.

ExecuTorch's own tools cannot tell which module an XNNPACK operator came from: the delegate's map in
the ETRecord is empty. The program's serialized XNNPACK graphs and the ETRecord's graph carry the
same debug handles, so together they say as much as the export itself, save for the partitioner's
reasons and the memory plan.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from etprof.base.files import MOST_PROGRAM_BYTES, read_bounded
from etprof.errors import InputFileError

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.operators import Operator

NOT_RECORDED = "not recorded: an ETRecord has no reasons of the partitioner"


def find_etrecord(pte: Path) -> Path | None:
    """Returns the ETRecord beside a program: `x.pte.etrecord` or `x.etrecord`; None without one."""
    named = (pte.with_name(f"{pte.name}.etrecord"), pte.with_suffix(".etrecord"))
    return next((path for path in named if path.is_file()), None)


def describe_program(pte: Path, etrecord: Path) -> dict[str, Any]:
    """Returns the delegation report of a program, in the form that `etprof export` writes.

    Raises InputFileError when a file cannot be read or the two do not belong together.
    """
    from etprof.export import delegation, program_size, sme2_prediction, upstream

    with upstream.quiet_upstream():
        content = _read(pte, lambda: _decode(pte))
        record = _read(etrecord, lambda: upstream.parse_etrecord(str(etrecord)))
        programs = record.edge_dialect_program
        programs = programs if isinstance(programs, dict) else {"forward": programs}
        methods = {
            plan.name: delegation.describe_method(_match(content, plan, programs, record), None)
            for plan in content.program.execution_plan
            # A constant that a model gives as a method has no instructions, and is in no graph.
            if plan.chains[0].instructions and _is_recorded(plan.name, programs, pte, etrecord)
        }
    return {
        "schema_version": delegation.SCHEMA_VERSION,
        "model": pte.stem,
        "prediction_source": sme2_prediction.SOURCE,
        "size": asdict(program_size.measure_program(pte, content, 0)),
        "methods": methods,
    }


def _decode(pte: Path) -> Any:  # noqa: ANN401 - ExecuTorch's own type
    from etprof.export import upstream

    return upstream.deserialize_pte_binary(read_bounded(pte, MOST_PROGRAM_BYTES))


def _read(path: Path, read: Any) -> Any:  # noqa: ANN401 - ExecuTorch's own types
    try:
        return read()
    # ExecuTorch's readers raise whatever a damaged file leads them to.
    except Exception as error:
        msg = f"cannot read {path}: {type(error).__name__}: {error}"
        raise InputFileError(msg) from error


def _is_recorded(name: str, programs: dict[str, Any], pte: Path, etrecord: Path) -> bool:
    """Returns True; raises InputFileError when the ETRecord does not have the method."""
    if name not in programs:
        msg = f"{etrecord} has no method {name!r}: it does not belong to {pte}"
        raise InputFileError(msg)
    return True


def _match(content: Any, plan: Any, programs: dict[str, Any], record: Any) -> Any:  # noqa: ANN401
    """Returns one method's operators and delegates, joined by debug handles.

    Operators that one operator was decomposed into share its handle; the graph's nodes of a handle
    are then taken in their order, and the last one stands for those that the graph does not have.
    """
    from etprof.export.operators import LoweredDelegate, LoweredMethod, call_nodes, describe_node

    nodes: dict[int | None, list[Any]] = {}
    for node in call_nodes(programs[plan.name].graph):
        nodes.setdefault(node.meta.get("debug_handle"), []).append(node)
    # Read back from JSON, its keys are text.
    handles = {int(key): value for key, value in record._debug_handle_map[plan.name].items()}
    method = LoweredMethod([], [])
    for instruction, arguments in enumerate(
        each.instr_args for each in plan.chains[0].instructions
    ):
        found = [_take(nodes, handle) for handle in _as_list(handles.get(instruction, []))]
        known = [node for node in found if node is not None]
        if not hasattr(arguments, "delegate_index"):
            kernel = _kernel_name(plan, arguments)
            described = [describe_node(node, None, NOT_RECORDED) for node in known]
            method.operators += [_as_kernel(each, kernel, instruction) for each in described]
            continue
        number = len(method.delegates)
        delegate = plan.delegates[arguments.delegate_index]
        blob = bytes(content.program.backend_delegate_data[delegate.processed.index].data)
        inside = [describe_node(node, number, None) for node in known]
        name = f"lowered_module_{number}"
        method.delegates.append(
            LoweredDelegate(name, delegate.id, blob, known, inside, instruction)
        )
        method.operators += inside
    return method


def _kernel_name(plan: Any, arguments: Any) -> str:  # noqa: ANN401 - ExecuTorch's own types
    """Returns what an instruction runs, such as `mul.Scalar_out`; empty for a move or a jump."""
    if not hasattr(arguments, "op_index"):
        return ""
    operator = plan.operators[arguments.op_index]
    return f"{operator.name.rpartition('::')[2]}.{operator.overload}"


def _as_kernel(operator: Operator, kernel: str, instruction: int) -> Operator:
    """Returns a graph's operator as the kernel that runs, which may be a part of it."""
    same = operator.operator.rpartition("::")[2].split(".")[-2:][0] == kernel.partition(".")[0]
    macs = operator.macs if same else None
    return replace(operator, operator=kernel, macs=macs, instruction=instruction)


def _take(nodes: dict[int | None, list[Any]], handle: int) -> Any:  # noqa: ANN401 - a node or None
    """Returns the next node of a handle, the last one again and again, or None."""
    queue = nodes.get(handle, [])
    return queue.pop(0) if len(queue) > 1 else next(iter(queue), None)


def _as_list(handles: int | list[int]) -> list[int]:
    return handles if isinstance(handles, list) else [handles]
