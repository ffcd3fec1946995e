"""Groups of a program's nodes, each with a colour: what a delegate call holds, what quantisation joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from etprof.run.delegation import GraphOperator, MethodReport

OUTSIDE: Final = "outside delegates"
_OUTSIDE_COLOUR: Final = "#bdbdbd"
_COLOURS: Final = (
    "#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6", "#fb9a99", "#ffff99", "#80cdc1", "#dfc27d",
)  # fmt: skip
"""Taken in turns: groups that follow each other are told apart."""


class GroupMember(NamedTuple):
    """What a node is in, and in which colour."""

    group: str
    colour: str


def delegate_of(report: MethodReport, operator: GraphOperator) -> str:
    """Names the delegate call that holds an operator."""
    number = operator.delegate
    if number is None:
        return OUTSIDE
    has_backend = number < len(report.delegates)
    return f"delegate {number}" + (f" ({report.delegates[number].backend})" if has_backend else "")


def node_groups(report: MethodReport) -> dict[str, dict[str, GroupMember]]:
    """Returns each grouping that the program has, by its name, with the nodes by theirs."""
    groupings = {"partitions": partitions(report), "quantised clusters": quantised_clusters(report)}
    return {name: members for name, members in groupings.items() if members}


def partitions(report: MethodReport) -> dict[str, GroupMember]:
    """Returns which delegate call each node is in; what is outside is grey."""
    return {
        operator.name: GroupMember(
            delegate_of(report, operator),
            _OUTSIDE_COLOUR
            if operator.delegate is None
            else _COLOURS[operator.delegate % len(_COLOURS)],
        )
        for operator in report.operators
    }


def quantised_clusters(report: MethodReport) -> dict[str, GroupMember]:
    """Returns which nodes a delegate computes as one in integers.

    Those are operators between dequantised inputs and a quantised result, with both; where the result
    stays in floats, as after dynamic quantisation, without it.
    """
    by_name = {operator.name: operator for operator in report.operators}
    members: dict[str, GroupMember] = {}
    number = 0
    for operators in _clusters(by_name):
        if any(operator.name in members for operator in operators if not operator.is_quantization):
            continue
        names = [o.operator.split(".")[0] for o in operators if not o.is_quantization]
        label = f"cluster {number}: {', '.join(names)}"
        colour = _COLOURS[number % len(_COLOURS)]
        members |= {operator.name: GroupMember(label, colour) for operator in operators}
        number += 1
    return members


def _clusters(by_name: Mapping[str, GraphOperator]) -> Iterator[list[GraphOperator]]:
    """Yields those that end in a quantised result, then single operators whose inputs alone were."""
    order = {name: position for position, name in enumerate(by_name)}
    ends = [o for o in by_name.values() if o.is_quantization and not _is_back(o)]
    singles = [o for o in by_name.values() if not o.is_quantization]
    for end in (*ends, *singles):
        inside = {end.name: end}
        if _walk_back(end, by_name, inside) and any(not o.is_quantization for o in inside.values()):
            yield sorted(inside.values(), key=lambda operator: order[operator.name])


def _walk_back(
    operator: GraphOperator, by_name: Mapping[str, GraphOperator], inside: dict[str, GraphOperator]
) -> bool:
    """Adds all that an operator is computed from up to dequantised values; False where some is not."""
    waiting, has_inputs = [operator], True
    while waiting and has_inputs:
        sources = [by_name[name] for name in waiting.pop().inputs if name in by_name]
        has_inputs = bool(sources)
        for source in sources:
            if source.is_quantization and not _is_back(source):
                return False
            if source.name not in inside and not source.is_quantization:
                waiting.append(source)
            inside[source.name] = source
    return has_inputs


def _is_back(operator: GraphOperator) -> bool:
    """Whether it turns integers into floats."""
    return "dequantize" in operator.operator
