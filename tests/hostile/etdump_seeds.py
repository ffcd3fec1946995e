"""The ETDumps that the consumer's fuzzing starts from, each of which it can read or refuse."""

from __future__ import annotations

from tests.cpp.etdump.make_seeds import make_seeds
from tests.hostile.etdumps import sound_blocks, write_blocks
from tests.known_etdumps import foreign_etdump, runner_etdump
from tests.known_runs import build_etdump, on_off_run


def etdump_seeds() -> dict[str, bytes]:
    """Returns the native target's seeds, and what runners write, by name."""
    return make_seeds() | {
        "runner": runner_etdump(),
        "foreign": foreign_etdump(),
        "sound": write_blocks(sound_blocks()),
        "known": build_etdump(on_off_run().experiments[0]),
    }
