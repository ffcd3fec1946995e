"""The largest numbers that a measurement takes, by flag or by config, and the usual ones."""

from __future__ import annotations

from typing import Final, Literal

MOST_THREADS: Final = 1024
MOST_CPU: Final = 9999
"""Number of a CPU."""
MOST_LAUNCHES: Final = 100_000
"""Process launches of one run."""
MOST_PROMPT: Final = 32_768
"""Arbitrary tokens of a prompt: the runner takes them as one argument, of at most 128 KiB."""
MOST_INFERENCES: Final = 1_000_000_000
"""Inferences, or tokens, of one launch."""
MOST_SECONDS: Final = 30 * 86_400
"""Of any time that is waited for or measured: a month."""
LARGEST_SEED: Final = 2**64 - 1
"""What etprof-runner takes."""
MOST_ENTRIES: Final = 1000
"""Entries of a list in a config or matrix: experiments, models, devices, inputs."""

VectorBits = Literal[128, 256, 512]
"""Streaming vector lengths of parts with SME that there are, or that are planned."""
USUAL_BLOCKS: Final = 12
"""Least number of pairs whose interval one disturbed launch cannot stretch over 1: of 12 pairs it leaves
out 13 Walsh averages at each end, and one pair is in 12. Of 10 it leaves out 8, and one is in 10."""
USUAL_OPERATOR_LAUNCHES: Final = 6
"""Least number of launches whose interval a periodic disturbance cannot mislead: the exact one of pairs."""
USUAL_SECONDS: Final = 0.2
"""Least time of a block."""
USUAL_TIMEOUT_S: Final = 3600
USUAL_INFERENCES: Final = 20
USUAL_WARMUP: Final = 10
"""Where a command plans the experiments; a config has fewer inferences."""
REPETITIONS: Final = 3
WARMUP_REPETITIONS: Final = 1
"""The default; fewer than of plain inferences: one generation is hundreds of them."""
