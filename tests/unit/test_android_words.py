"""What comes before the runner on a phone."""

from __future__ import annotations

from pathlib import Path

from etprof.targets.android.target import AndroidTarget


def test_a_mask_has_one_bit_a_core() -> None:
    """Promise 19: Android's taskset knows masks only; core 0 is the lowest bit."""
    runner = Path("etprof-runner")
    target = AndroidTarget(launcher=["nice"])
    target._libraries[runner] = ()
    words = target._command_prefix(runner, {runner: "/data/r"}, cpus=(0, 4, 7))
    assert words == ["taskset", "91", "nice", "/data/r"]
