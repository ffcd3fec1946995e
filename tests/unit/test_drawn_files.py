"""Further single changes that went unnoticed, in what files and processes say to each other."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.etdump.reader import SCALAR_DTYPES
from etprof.export.bundle_runtime import _run_case
from etprof.model_registry.saved_program import _texts
from etprof.targets import device_lock

if TYPE_CHECKING:
    from pathlib import Path


def test_logged_tensors_have_executorchs_types() -> None:
    """By the numbers of executorch.exir.scalar_type; 12 to 14 and 22 are quantised values and bits."""
    assert {number: np.dtype(dtype).name for number, dtype in SCALAR_DTYPES.items()} == {
        0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
        7: "float64", 9: "complex64", 10: "complex128", 11: "bool", 12: "int8", 13: "uint8",
        14: "int32", 22: "uint16", 27: "uint16", 28: "uint32", 29: "uint64",
    }  # fmt: skip


class BundledModule:
    """Takes an absolute tolerance of 0.5 and a relative one of 0.25 for enough, and no other."""

    def verify_result_with_bundled_expected_output(
        self, method: str, case: int, relative: float, absolute: float
    ) -> None:
        if (method, case, relative, absolute) != ("forward", 0, 0.25, 0.5):
            raise RuntimeError("Result verification failed")


@pytest.mark.parametrize(
    ("relative", "absolute", "problem"),
    [(0.25, 0.5, None), (0.5, 0.25, "Result verification failed")],
)
def test_a_bundle_is_held_to_both_tolerances(
    relative: float, absolute: float, problem: str | None
) -> None:
    assert _run_case(BundledModule(), "forward", relative, absolute) == problem


def test_texts_of_json_within_json_are_read_too() -> None:
    """A saved program hides what it would evaluate in a specification that is a text itself."""
    specification = json.dumps([{"type": "__import__('os')"}])
    texts = set(_texts({"graph": {"in_spec": specification, "metadata": "left alone"}}))
    assert ("type", "__import__('os')") in texts
    assert ("", "metadata") in texts
    assert "left alone" not in {text for _, text in texts}


def test_whoever_has_just_got_the_lock_may_still_be_signing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    pauses: list[float] = []

    def sign_after_two(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            os.pwrite(descriptor, b"etprof profile (process 7)", 0)

    monkeypatch.setattr("etprof.targets.device_lock.time.sleep", sign_after_two)
    try:
        assert device_lock._read_signature(descriptor) == "etprof profile (process 7)"
        assert len(pauses) == 2
        # What is signed is read at once.
        assert device_lock._read_signature(descriptor) == "etprof profile (process 7)"
        assert len(pauses) == 2
    finally:
        os.close(descriptor)
