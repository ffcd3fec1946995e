"""The flags of `etprof profile` that say how to measure."""

from __future__ import annotations

import argparse

from etprof.base.limits import LARGEST_SEED, MOST_INFERENCES, MOST_LAUNCHES, MOST_THREADS
from etprof.cli.argument_types import seconds, whole_number


def add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to measure."""
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--threads",
        type=whole_number(1, MOST_THREADS),
        metavar="N",
        help="threads (default: all cores)",
    )
    group.add_argument(
        "--blocks",
        type=whole_number(1, MOST_LAUNCHES),
        metavar="N",
        help="process launches of each SME mode (default 10; no 95 %% interval below 6)",
    )
    group.add_argument(
        "--iterations",
        type=whole_number(1, MOST_INFERENCES),
        metavar="N",
        help="least inferences a block (default 20; generations: 3)",
    )
    group.add_argument(
        "--min-seconds",
        type=seconds,
        metavar="S",
        help="least time a block (default 0.2 s)",
    )
    group.add_argument(
        "--warmup",
        type=whole_number(0, MOST_INFERENCES),
        metavar="N",
        help="warm-up inferences (default 10; generations: 1)",
    )
    _add_launch_arguments(group)


def _add_launch_arguments(group: argparse._ArgumentGroup) -> None:
    """Declares what holds for each process launch."""
    group.add_argument(
        "--seed",
        type=whole_number(0, LARGEST_SEED),
        metavar="N",
        help="of inputs and block order (default 0)",
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help="longest a launch may take (default 3600 s)",
    )
