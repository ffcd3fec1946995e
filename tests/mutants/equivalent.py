"""Changes that no test can notice, because nobody can: what the code does is the same.

By file of the package, changed lines before and after, each joined to one line, with the reason. A
change stands here only where no input and no moment shows it.
"""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[tuple[str, str, str], str]] = {
    (
        "etdump/plausibility.py",
        "return ClockSigns(*map(sum, zip(self, piece_signs, strict=True)))",
        "return ClockSigns(*map(sum, zip(piece_signs, self, strict=True)))",
    ): "a sum of two whole numbers has no order",
    (
        "cli/profile.py",
        "chosen_threads = target.default_threads() if arguments.threads is None else 1",
        "chosen_threads = target.default_threads() if arguments.threads is None else 0",
    ): "it is only asked whether there are more than one",
    (
        "views/trace.py",
        "int(times.duration[row]) if times else 0,",
        "int(times.duration[row]) if times else 1,",
    ): "events without times are put one step apart before they are shown",
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
    (
        "statistics/two_samples.py",
        "_rank_sum_masses(first, second - 1)",
        "_rank_sum_masses(second - 1, first)",
    ): "Mann and Whitney's U has the same distribution whichever of two samples comes first",
    (
        "statistics/change_points.py",
        "for runs in range(inside, size + 1)",
        "for runs in range(inside, size + 2)",
    ): "there is no way to choose more than all: `math.comb(size, size + 1)` is 0",
    (
        "targets/device_lock.py",
        "descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)",
        "descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 146)",
    ): "whoever made the file owns it, and the next statement gives it its mode",
    (
        "analysis/findings/gains.py",
        "if low is None or high is None:",
        "if low is None and high is None:",
    ): "both intervals are of as many launches, and one is missing for too few of them alone",
    (
        "backends/xnnpack/graph.py",
        "@lru_cache(maxsize=1)",
        "@lru_cache(maxsize=2)",
    ): "more results are kept, and the same ones returned",
    (
        "history/trend.py",
        ".where(Run.series == newest.series, Run.status == OK, Run.representative)",
        ".where(Run.series == newest.series, Run.representative, Run.status == OK)",
    ): "all conditions hold, in whichever order they stand",
    (
        "export_llm/uses.py",
        '"use_torchao_kernels_linear", "use_torchao_kernels_tied_embedding"',
        '"use_torchao_kernels_tied_embedding", "use_torchao_kernels_linear"',
    ): "they are keys of one mapping with one value",
}
