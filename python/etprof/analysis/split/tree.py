"""An inference as a tree: the model's modules, their operators, and the microkernels of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from math import fsum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from etprof.analysis.insight import describe_experiment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.insight import ExperimentInsight, OperatorDetail
    from etprof.analysis.split.operators import OperatorSplit
    from etprof.backends.backend import OperatorClass

Kind = Literal["whole", "module", "operator", "microkernel", "overhead"]
_WHOLE: Final = "Method::execute"
_DEEPEST: Final = 24
"""Modules inside each other; what is deeper is one name. Real models have up to ten."""


class Box(NamedTuple):
    """One box of the tree; its times are the sum of those inside it."""

    number: int
    """Its place, depth first."""
    parent: int | None
    depth: int
    kind: Kind
    label: str
    path: str
    """Of a module, from the model; of others, of the module they are in."""
    operator: int | None
    """Number of the operator, as operator tables have it."""
    operator_class: OperatorClass | None
    means_ns: tuple[float, ...]
    """Mean time in an inference, of each side."""


@dataclass
class _TreeNode:
    kind: Kind
    label: str
    path: str = ""
    operator: int | None = None
    operator_class: OperatorClass | None = None
    means_ns: tuple[float, ...] = ()
    """Of what has nothing inside."""
    inside: list[_TreeNode] = field(default_factory=list)
    modules: dict[str, _TreeNode] = field(default_factory=dict)

    def module(self, name: str) -> _TreeNode:
        """The module of that name inside."""
        if name not in self.modules:
            path = f"{self.path}.{name}" if self.path else name
            self.modules[name] = _TreeNode("module", name, path)
            self.inside.append(self.modules[name])
        return self.modules[name]

    def collapse(self) -> _TreeNode:
        """Joins a module with the only thing in it, while that is a module."""
        node, names = self, [self.label]
        while node.kind == "module" and [child.kind for child in node.inside] == ["module"]:
            node = node.inside[0]
            names.append(node.label)
        node.label = ".".join(names)
        return node

    def total_ns(self) -> tuple[float, ...]:
        """Of all inside, side by side."""
        if not self.inside:
            return self.means_ns
        return tuple(map(fsum, zip(*(child.total_ns() for child in self.inside), strict=True)))


def inference_tree(insight: ExperimentInsight) -> list[Box]:
    """Returns one experiment's inference, depth first; nothing where it proves no times."""
    split = insight.experiment.split
    if split.times is None:
        return []
    root = _TreeNode("whole", _WHOLE)
    for number, detail in enumerate(insight.details, start=1):
        mean = detail.row.times.mean_ns if detail.row.times else 0.0
        _add_operator(root, number, detail.row.label, ([detail],), (mean,))
    return list(_boxes(root, (split,)))


def comparison_tree(comparison: Comparison) -> list[Box]:
    """Returns both sides' inferences as one tree: times of the baseline, then the candidate."""
    sides = [side.experiment for side in (comparison.baseline, comparison.candidate)]
    if comparison.times is None or any(side.split.times is None for side in sides):
        return []
    details = {id(d.row): d for side in sides for d in describe_experiment(side).details}
    root = _TreeNode("whole", _WHOLE)
    for number, operator in enumerate(comparison.operators, start=1):
        pair = operator.aligned
        times = pair.baseline_times, pair.candidate_times
        side_details = [[details[id(row)] for row in rows] for rows in (pair.before, pair.after)]
        means = tuple(side_times.mean_ns if side_times else 0.0 for side_times in times)
        _add_operator(root, number, pair.label, side_details, means)
    return list(_boxes(root, [side.split for side in sides]))


def _add_operator(
    root: _TreeNode,
    number: int,
    label: str,
    sides: Sequence[Sequence[OperatorDetail]],
    means_ns: tuple[float, ...],
) -> None:
    """Puts an operator into its module, as the last side that has it knows that."""
    main = next(side for side in reversed(sides) if side)[0]
    home = root
    for name in (main.module_path or "").split(".", _DEEPEST - 1):
        home = home.module(name) if name else home
    shared = (home.path, number, main.row.operator_class, means_ns)
    node = _TreeNode("operator", label, *shared)
    home.inside.append(node)
    hints = [" + ".join(d.kernel_hint for d in side if d.kernel_hint) for side in sides]
    if any(hints):
        names = dict.fromkeys(hint.replace("kai_run_", "") or "none" for hint in hints)
        node.inside.append(_TreeNode("microkernel", " → ".join(names), *shared))


def _boxes(root: _TreeNode, splits: Sequence[OperatorSplit]) -> Iterator[Box]:
    """Adds the overheads, which are in no module, and numbers everything."""
    sides = [{row.label: row for row in split.overheads} for split in splits]
    for label in dict.fromkeys(label for side in sides for label in side):
        rows = [side.get(label) for side in sides]
        means = tuple(row.times.mean_ns if row else 0.0 for row in rows)
        overhead = next(row for row in rows if row)
        root.inside.append(_TreeNode("overhead", label, "", None, overhead.operator_class, means))
    yield from _number(root, None, 0, count())


def _number(
    node: _TreeNode, parent: int | None, depth: int, numbers: Iterator[int]
) -> Iterator[Box]:
    collapsed, number = node.collapse(), next(numbers)
    yield Box(
        number, parent, depth, collapsed.kind, collapsed.label, collapsed.path, collapsed.operator,
        collapsed.operator_class, collapsed.total_ns(),
    )  # fmt: skip
    for child in collapsed.inside:
        yield from _number(child, number, depth + 1, numbers)
