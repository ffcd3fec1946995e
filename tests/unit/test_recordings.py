"""Real ETDumps that are kept here read as ExecuTorch reads them, on any host."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etprof.base.errors import EtprofError
from etprof.cli import main as run_etprof
from etprof.etdump.reader import TensorEntry, load_etdump, read_tensor
from tests.recordings import FOLDER, NAMES, Key, Times, times_of_reader


def read_said(name: str) -> dict[str, Any]:
    """What Inspector said when the recording was made."""
    said: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_bytes())
    return said


@pytest.mark.parametrize("name", NAMES)
def test_events_and_times_are_inspectors(name: str) -> None:
    said = read_said(name)
    dump = load_etdump(FOLDER / f"{name}.etdump")
    expected: dict[Key, Times] = {
        (block, event, instruction): [(start, duration) for start, duration in times]
        for block, event, instruction, times in said["times"]
    }
    found = times_of_reader(dump)
    assert found.keys() == expected.keys()
    blocks = [dump.names[name_id] for name_id in dump.blocks.name_id]
    runs = Counter(blocks)
    # Inspector keeps one of several calls of the same name in an inference.
    once = [key for key in found if len(found[key]) == runs[key[0]]]
    assert len(once) > len(found) / 2
    assert {key: found[key] for key in once} == {key: expected[key] for key in once}
    assert list(dict.fromkeys(blocks)) == list(dict.fromkeys(said["blocks"]))


def test_logged_values_are_inspectors() -> None:
    dump = load_etdump(FOLDER / "steps.etdump")
    buffer = (FOLDER / "steps.bin").read_bytes()
    entries: list[TensorEntry] = []
    for row in np.flatnonzero(dump.debug.is_output != 1):
        value = dump.debug_value(int(row))
        if isinstance(value, TensorEntry):
            entries.append(value)
        elif isinstance(value, tuple):
            entries += value
    found = [read_tensor(each, buffer).tolist() for each in entries]
    expected = read_said("steps")["values"]
    assert len(expected) > 3
    assert [each for each in expected if each not in found] == []


def test_a_recording_is_analysed(capsys: pytest.CaptureFixture[str]) -> None:
    """Its operators are those that the delegate named, and take what its calls took at most."""
    path = FOLDER / "toy_cnn.etdump"
    assert run_etprof(["analyze", str(path), "--json"]) == 0
    told = capsys.readouterr().out
    labels = {name for _, name, instruction, _ in read_said("toy_cnn")["times"] if "#" in name}
    assert len(labels) > 3
    assert [label for label in labels if label not in told] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_of_a_recording_is_refused_with_its_name(name: str, tmp_path: Path) -> None:
    """A transfer that broke off."""
    data = (FOLDER / f"{name}.etdump").read_bytes()
    cut = tmp_path / "cut.etdump"
    for length in range(0, len(data), 97):
        cut.write_bytes(data[:length])
        with pytest.raises(EtprofError, match=r"cut\.etdump"):
            load_etdump(cut)
