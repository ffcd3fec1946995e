"""Changes that no test can notice, because nobody can: what the code does is the same.

By file of the package, changed lines before and after, each joined to one line, with the reason. A
change stands here only where no input and no moment shows it.
"""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[tuple[str, str, str], str]] = {
    (
        "statistics/calibration.py",
        "varies = max(kurtosis - (count - 3) / max(1, count - 1), 0.0) / count",
        "varies = max(kurtosis - (count - 3) / max(0, count - 1), 0.0) / count",
    ): "a single value is its own middle, so its deviation is 0 and the function has returned",
    (
        "backends/xnnpack/graph.py",
        "for other in mapped[entry.node.index + 1 :]:",
        "for other in mapped[entry.node.index + 0 :]:",
    ): (
        "it adds the node itself, where that reads its own result; readers are asked of nodes "
        "without operators alone, and such a one has nothing to give to itself"
    ),
    (
        "dashboard/views/run.py",
        "reach = (high - low) or 1.0",
        "reach = (high - low) or 2.0",
    ): "where all values are equal, each one's distance from the lowest is 0, whatever divides it",
}
