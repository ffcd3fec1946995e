"""What is asked of etprof-runner, as a value and as its command line."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etprof.base.atomic import scratch_folder
from etprof.base.errors import InputFileError, OutputError
from etprof.base.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.run.generation import Generation
    from etprof.targets.launch_layout import LayoutShift


@dataclass(frozen=True, kw_only=True)
class RunnerRequest:
    """One launch of the runner; all paths are on this machine, the target brings them over."""

    model: Path
    result: Path
    data: Path | None = None
    inputs: tuple[Path, ...] = ()
    shapes: tuple[str, ...] = ()
    """Of the tensors in `inputs`, such as `1x3x224x224`; empty: the largest the method takes."""
    method: str = "forward"
    iterations: int | None = None
    min_seconds: float | None = None
    warmup: int = 0
    warmup_seconds: float | None = None
    warmup_steady: bool = False
    cold_inputs: bool = False
    threads: int | None = None
    seed: int = 0
    sme: str = "auto"
    sme_vector_bits: int | None = None
    """Streaming vector length of a CPU that can have several; None: the target's own."""
    etdump: Path | None = None
    kernel_trace: Path | None = None
    instruction_counts: Path | None = None
    """Where to leave how many instructions operators take, on a target that can count them."""
    outputs: Path | None = None
    output_steps: int = 1
    """Inferences, from the first, whose outputs are kept there; state makes each another."""
    step_inputs: bool = False
    """Whether each file of `inputs` holds the values of all those inferences in a row."""
    timeout_s: float = 3600.0
    runner: Path | None = None
    """None: the target's own runner."""
    launcher: tuple[str, ...] = ()
    """Words before the runner, such as an emulator's."""
    cpus: tuple[int, ...] = ()
    """CPUs to run on; empty: all."""
    generation: Generation | None = None
    """Generate tokens; then `method` and `inputs` play no part, and `outputs` is None."""
    extra_arguments: tuple[str, ...] = ()
    """Further flags for the runner, as they are."""
    layout: LayoutShift | None = None
    """By how much the launch moves heap and stack; None where nothing is timed, or is to repeat."""

    @property
    def log(self) -> Path:
        """Where a target that has a log of its own leaves what it says of the launch."""
        return self.result.with_name(f"{self.result.stem}_logcat.txt")

    @property
    def words(self) -> Path:
        """Where the target keeps what the runner printed; no file where it printed nothing."""
        return self.result.with_name(f"{self.result.stem}_runner.txt")

    @property
    def written(self) -> tuple[Path, ...]:
        """The files and folders that the launch is asked to leave."""
        logs = (self.log, self.words)
        traces = (self.etdump, self.kernel_trace, self.instruction_counts)
        return tuple(path for path in (self.result, *traces, self.outputs, *logs) if path)


REQUESTED: Final = frozenset(field.name for field in fields(RunnerRequest))
"""What a program, an experiment and the settings say of a launch, by the same names."""


def runner_arguments(request: RunnerRequest) -> list[str]:
    """Returns the runner's flags for `request`; every value is joined by `=`, never split."""
    flags: list[tuple[str, object | None]] = [
        ("model", request.model),
        ("data", request.data),
        *_input_flags(request),
        ("iterations", request.iterations),
        ("min-seconds", request.min_seconds),
        ("warmup", request.warmup),
        ("warmup-seconds", request.warmup_seconds),
        ("threads", request.threads),
        ("seed", request.seed),
        ("sme", None if request.sme == "auto" else request.sme),
        ("etdump", request.etdump),
        ("kernel-trace", request.kernel_trace),
        ("outputs", request.outputs),
        ("output-steps", request.output_steps if request.output_steps > 1 else None),
        ("result", request.result),
    ]
    arguments = [f"--{name}={value}" for name, value in flags if value is not None]
    switches = {
        "warmup-steady": request.warmup_steady,
        "cold-inputs": request.cold_inputs,
        "step-inputs": request.step_inputs,
    }
    arguments += [f"--{name}" for name, is_on in switches.items() if is_on]
    return [*arguments, *request.extra_arguments]


def _input_flags(request: RunnerRequest) -> list[tuple[str, object | None]]:
    """What the program is given: tensors for one method, or a prompt."""
    generation = request.generation
    if generation is None:
        inputs = (("input", path) for path in request.inputs)
        shapes = ",".join(request.shapes) or None
        return [*inputs, ("shapes", shapes), ("method", request.method)]
    return [
        ("generate", generation.new_tokens),
        ("prompt-tokens", ",".join(map(str, generation.prompt_tokens))),
        ("prefill-method", generation.prefill_method),
        ("decode-method", generation.decode_method),
    ]


def taskset_command(cpus: tuple[int, ...]) -> list[str]:
    """Returns what comes before a command to keep it on `cpus`; nothing for all CPUs."""
    return ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []


@contextmanager
def raw_inputs(request: RunnerRequest) -> Iterator[RunnerRequest]:
    """Gives the runner raw values, all that it takes: those of `.npy` files are unpacked meanwhile.

    Type and shape of such a file go along; the runner holds them against the method's. Raises
    InputFileError for a file that NumPy did not write, or that has other values than numbers.
    """
    with scratch_folder("inputs") as folder:
        inputs, shapes = list(request.inputs), list(request.shapes)
        for index, path in enumerate(request.inputs):
            if (array := _read_npy(path)) is None:
                continue
            shape = "x".join(map(str, array.shape)) or "scalar"
            shapes = shapes or ["largest"] * len(inputs)
            if shapes[index] not in {"largest", shape}:
                msg = f"{path} has the shape {shape}, but {shapes[index]} is asked for; reshape it"
                raise InputFileError(msg)
            shapes[index] = f"{array.dtype.name}:{shape}"
            inputs[index] = Path(folder, f"input_{index}.bin")
            try:
                array.tofile(inputs[index])
            except OSError as error:
                msg = f"cannot write {inputs[index]}: {error}; free some space, or set TMPDIR"
                raise OutputError(msg) from error
        yield replace(request, inputs=tuple(inputs), shapes=tuple(shapes))


def _read_npy(path: Path) -> np.ndarray[Any, Any] | None:
    """Maps an array that NumPy saved, of numbers or booleans; None for any other file."""
    problem: object = "its values are too few, too many or no little-endian numbers"
    try:
        with open_regular(path) as stream:
            if stream.read(6) != b"\x93NUMPY":
                return None
        array = np.lib.format.open_memmap(path, mode="r")
        is_whole = array.offset + array.nbytes == path.stat().st_size
        if is_whole and array.dtype.kind in "biufc" and array.dtype.byteorder != ">":
            return array
    except (OSError, ValueError, ArithmeticError, SyntaxError, RecursionError, TokenError) as error:
        problem = getattr(error, "strerror", None) or error
    raise InputFileError(f"cannot read {path}: {problem}; save numbers or booleans with numpy.save")
