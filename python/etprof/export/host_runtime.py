"""Runs a program on this machine with etprof-runner, which is what measures it later.

The runner is a process of its own, so a program that crashes ends nothing else. ExecuTorch's
Python bindings would not do: they have no kernels for quantisation outside a delegate.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from etprof.base.errors import ExportError
from etprof.base.files import MOST_PROGRAM_BYTES, read_bounded
from etprof.base.json_input import parse_json, read_json
from etprof.export import tensors
from etprof.targets.runner import ask_host_runner

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 600.0
_MISSING_OPERATOR = re.compile(r"Missing operator: \[\d+\] ([\w:.]+)")


def execute(
    program: Path, external_data: Path | None, method: str, inputs: Sequence[Any]
) -> list[torch.Tensor]:
    """Returns the output tensors of one execution.

    Raises ExportError when the runtime refuses the program or crashes.
    """
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    with tempfile.TemporaryDirectory(prefix="etprof-check-") as name:
        folder = Path(name)
        words: list[str | Path] = ["--model", program, "--method", method]
        words += ["--iterations", "1", "--warmup", "0", "--result", folder / "result.json"]
        words += ["--outputs", folder / "outputs"]
        if external_data is not None:
            words += ["--data", external_data]
        if given:
            words += ["--shapes", ",".join(_shape_text(value) for value in given)]
        for index, value in enumerate(given):
            file = folder / f"input_{index}.bin"
            file.write_bytes(tensors.raw_bytes(value))
            words += ["--input", file]
        _run(program, method, words)
        return _read_outputs(folder, _output_orders(program, method))


def _shape_text(tensor: torch.Tensor) -> str:
    """The shape as the runner takes it."""
    return "x".join(map(str, tensor.shape)) or "scalar"


def _run(program: Path, method: str, words: list[str | Path]) -> None:
    completed = ask_host_runner(words, timeout_s=TIMEOUT_S)
    if completed.exit_code == 0:
        return
    said = [line for line in completed.stderr.splitlines() if "cpuinfo_utils" not in line]
    detail = said[-1].removeprefix("etprof-runner: ") if said else "it says nothing"
    # The program is in a folder that nobody will see; its name is enough.
    detail = detail.replace(str(program), program.name)
    missing = sorted(set(_MISSING_OPERATOR.findall(completed.stderr)))
    if missing:
        msg = f"method {method!r} needs operators that ExecuTorch has no kernel for: "
        raise ExportError(msg + ", ".join(missing))
    if completed.exit_code < 0:
        msg = f"method {method!r} crashes ExecuTorch's runtime, as it would on a device: {detail}"
    else:
        msg = f"ExecuTorch's runtime cannot execute method {method!r}: {detail}"
    raise ExportError(msg)


def _output_orders(program: Path, method: str) -> list[list[int]]:
    """Returns the dimension order of each output, outermost first."""
    described = ask_host_runner(["--describe", "--model", program])
    methods = {each["name"]: each for each in parse_json(described.stdout)["methods"]}
    return [each["dim_order"] for each in methods[method]["outputs"] if each["kind"] == "tensor"]


def _read_outputs(folder: Path, orders: list[list[int]]) -> list[torch.Tensor]:
    result = read_json(folder / "result.json", way_out="export again")
    return [
        _read_output(folder, entry, order)
        for entry, order in zip(result["outputs"], orders, strict=True)
    ]


def _read_output(folder: Path, entry: dict[str, Any], order: list[int]) -> torch.Tensor:
    """Returns an output in its logical shape; its memory keeps the program's order."""
    file = folder / "outputs" / Path(entry["path"]).name
    content = bytearray(read_bounded(file, MOST_PROGRAM_BYTES))
    dtype, shape = getattr(torch, entry["dtype"]), entry["shape"]
    if not content:
        return torch.empty(shape, dtype=dtype)
    stored = torch.frombuffer(content, dtype=dtype).reshape([shape[place] for place in order])
    return stored.permute([order.index(place) for place in range(len(order))])
