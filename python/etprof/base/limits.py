"""The largest numbers that a measurement takes, by flag or by config."""

from __future__ import annotations

from typing import Final

MOST_THREADS: Final = 1024
MOST_CPU: Final = 9999
"""Number of a CPU."""
MOST_LAUNCHES: Final = 100_000
"""Process launches of one run."""
MOST_INFERENCES: Final = 1_000_000_000
"""Inferences, or tokens, of one launch."""
MOST_SECONDS: Final = 30 * 86_400
"""Of any time that is waited for or measured: a month."""
LARGEST_SEED: Final = 2**64 - 1
"""What etprof-runner takes."""
MOST_ENTRIES: Final = 1000
"""Entries of a list in a config or matrix: experiments, models, devices, inputs."""
