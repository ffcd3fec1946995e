"""The flags of `etprof profile` that say how to measure."""

from __future__ import annotations

import argparse

from etprof.base.limits import LARGEST_SEED, MOST_INFERENCES, MOST_LAUNCHES, MOST_THREADS
from etprof.cli.flags import add_flags, seconds, whole_number


def add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to measure."""
    inferences = whole_number(0, MOST_INFERENCES)
    add_flags(
        parser.add_argument_group("measurement"),
        ("--threads", whole_number(1, MOST_THREADS), "N", "threads (default: all cores)"),
        ("--blocks", whole_number(1, MOST_LAUNCHES), "N",
         "process launches of each SME mode (default 10; no 95 %% interval below 6)"),
        ("--iterations", whole_number(1, MOST_INFERENCES), "N",
         "least inferences a block (default 20; generations: 3)"),
        ("--min-seconds", seconds, "S", "least time a block (default 0.2 s)"),
        ("--warmup", inferences, "N", "warm-up inferences (default 10; generations: 1)"),
        ("--seed", whole_number(0, LARGEST_SEED), "N", "of inputs and block order (default 0)"),
        ("--timeout", seconds, "S", "longest a launch may take (default 3600 s)"),
    )  # fmt: skip
