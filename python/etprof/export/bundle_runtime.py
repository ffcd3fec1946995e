"""Executes the test cases inside a bundled program with ExecuTorch's Python runtime.

`python -m etprof.export.bundle_runtime FILE.bpte RTOL METHOD=ATOL …` prints a JSON object: for each
method null when its outputs are the expected ones, else what ExecuTorch says. It is a process of its
own because ExecuTorch ends the process for some of the cases that it does not like.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

DIFFERENT = "Result verification failed"
"""How ExecuTorch's message starts when a method ran but gave something else."""


def run_cases(bundle: Path, rtol: float, tolerances: dict[str, float]) -> dict[str, str | None]:
    """Returns each method's problem, or None; `tolerances` are absolute ones, by method."""
    from executorch.extension.pybindings import portable_lib

    module = portable_lib._load_bundled_program_from_buffer(bundle.read_bytes())
    return {name: _run_case(module, name, rtol, atol) for name, atol in tolerances.items()}


def _run_case(module: Any, method: str, rtol: float, atol: float) -> str | None:  # noqa: ANN401
    try:
        module.verify_result_with_bundled_expected_output(method, 0, rtol, atol)
    except RuntimeError as error:
        return str(error)
    return None


def main() -> None:
    """Reads the words of the command line and prints the result."""
    _, bundle, rtol, *methods = sys.argv
    pairs = [argument.rpartition("=") for argument in methods]
    tolerances = {name: float(value) for name, _, value in pairs}
    print(json.dumps(run_cases(Path(bundle), float(rtol), tolerances)))


if __name__ == "__main__":
    main()
