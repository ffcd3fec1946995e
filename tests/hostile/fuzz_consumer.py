"""Fuzzes what is made of an ETDump, guided by coverage of etprof's own Python.

usage: python -m tests.hostile.fuzz_consumer [--minutes N] [FLAGS OF LIBFUZZER…] [CORPUS]

Needs atheris (`nox -s fuzz` brings it). Ends with the first input that raises anything but an
EtprofError, makes a share outside 0 to 1, or takes longer than 10 s; its bytes are kept.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Final

import atheris

# First of all imports of etprof: only what is imported within is guided by its coverage.
with atheris.instrument_imports(include=["etprof"]):
    from tests.hostile.consumer import consume
from tests.hostile.etdump_seeds import etdump_seeds
from tests.hostile.etdumps import mutate_etdump

_LARGEST_BYTES: Final = 2**15
_FRESH: Final = 4
"""One mutation in this many is a new lie of our own, about times and names; bytes come from libFuzzer."""


def main() -> None:
    """Fuzzes until the time is over; libFuzzer ends the process."""
    words = sys.argv[1:]
    minutes = 1.0
    if "--minutes" in words:
        at = words.index("--minutes")
        minutes = float(words[at + 1])
        del words[at : at + 2]
    folder = Path(tempfile.mkdtemp(prefix="consumer-fuzz-"))
    flags = {
        "-max_total_time": round(minutes * 60), "-max_len": _LARGEST_BYTES, "-timeout": 10,
        "-rss_limit_mb": 4096, "-print_final_stats": 1, "-artifact_prefix": f"{folder}/",
    }  # fmt: skip
    corpus = [word for word in words if not word.startswith("-")] or [str(folder / "corpus")]
    seeds = folder / "seeds"
    seeds.mkdir()
    for name, data in etdump_seeds().items():
        (seeds / name).write_bytes(data)
    Path(corpus[0]).mkdir(parents=True, exist_ok=True)
    given = [word for word in words if word.startswith("-")]
    arguments = [sys.argv[0], *(f"{name}={value}" for name, value in flags.items()), *given]
    atheris.Setup([*arguments, *corpus, str(seeds)], test_one_input, custom_mutator=mutate)
    atheris.Fuzz()


def test_one_input(data: bytes) -> None:
    """What libFuzzer calls."""
    consume(data)


def mutate(data: bytes, largest: int, seed: int) -> bytes:
    """Returns an input's successor."""
    if seed % _FRESH == 0:
        fresh, _ = mutate_etdump(Random(seed))
        if len(fresh) <= largest:
            return fresh
    mutated: bytes = atheris.Mutate(data, largest)
    return mutated


if __name__ == "__main__":
    main()
