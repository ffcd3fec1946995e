"""Runs a finished program and holds its outputs against eager's; has ExecuTorch verify a bundle.

The program runs in etprof-runner, which is what measures it later, as a process of its own: one
that crashes ends nothing else. ExecuTorch's Python bindings would not do: they have no kernels for
quantisation outside a delegate.
"""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from etprof.base.atomic import scratch_folder
from etprof.base.errors import ExportError
from etprof.base.files import MOST_PROGRAM_BYTES, read_bounded
from etprof.base.json_input import parse_json, read_json
from etprof.base.process import run_command
from etprof.export import bundle_runtime, lowering, tensors, upstream
from etprof.run.accuracy import NO_LIKENESS_DB, judge_lowering, judge_precision
from etprof.run.program import BundleCheck, CheckedOutput, ExportCheck
from etprof.statistics.likeness import compare
from etprof.targets.request import RunnerRequest, runner_arguments
from etprof.targets.runner import ask_host_runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etprof.base.process import Completed
    from etprof.model_registry.eager_model import ExportMethod
    from etprof.run.accuracy import Floors
    from etprof.statistics.likeness import Parity


@dataclass(frozen=True)
class CheckedMethod:
    """What one execution of a method gave, and how right that is."""

    check: ExportCheck
    outputs: list[torch.Tensor | None]
    converted: list[torch.Tensor | None]
    """What the converted eager model gives for the same inputs."""


def check_program(  # noqa: PLR0913 - the program, what it should give, and how near
    pte: Path,
    ptd: Path | None,
    name: str,
    method: ExportMethod,
    references: Sequence[torch.Tensor | None],
    *,
    precision: str,
    floors: Floors,
) -> CheckedMethod:
    """Executes method `name` and answers both questions on its outputs.

    Raises ExportError when the runtime refuses the program.
    """
    inputs = tensors.flatten((method.inputs, dict(method.kwarg_inputs)))
    actual = execute(pte, ptd, name, inputs)
    converted = lowering.run_eager(method)
    expected = sum(reference is not None for reference in references)
    if len(actual) != expected:
        msg = f"method {name!r} gives {len(actual)} outputs, the eager model {expected}"
        raise ExportError(msg)
    remaining = iter(actual)
    outputs = [None if reference is None else next(remaining) for reference in references]
    comparisons = [
        [
            compare_output(index, output, expected, floors.snr_db)
            for index, (output, expected) in enumerate(pairs)
            if output is not None and expected is not None
        ]
        for pairs in (
            zip(outputs, references, strict=True),
            zip(outputs, converted, strict=True),
            zip(converted, references, strict=True),
        )
    ]
    parities, lowered, cost = comparisons
    costs = {parity.index: parity.snr_db for parity in cost}
    verdicts = (
        judge_lowering(lowered, precision, costs),
        judge_precision(parities, floors),
    )
    check = ExportCheck(
        minimum_snr_db=floors.snr_db,
        passed=all(verdict.answer != "failed" for verdict in verdicts),
        floors=floors,
        verdicts=verdicts,
        outputs=tuple(itertools.starmap(_checked, zip(parities, lowered, cost, strict=True))),
    )
    return CheckedMethod(check, outputs, converted)


def compare_output(
    index: int, output: torch.Tensor, reference: torch.Tensor, least_db: float | None = None
) -> Parity:
    """Compares one output with what it should be; raises ExportError for one of another size."""
    if output.numel() != reference.numel():
        shapes = f"{list(output.shape)}, eager {list(reference.shape)}"
        raise ExportError(f"output {index} of the program has shape {shapes}; return fixed shapes")
    return compare(
        index,
        output.detach().double().reshape(-1).numpy(),
        reference.detach().double().reshape(-1).numpy(),
        output.shape[-1] if output.dim() else 1,
        least_db=least_db,
        is_whole=not output.is_floating_point(),
    )


def _checked(parity: Parity, lowered: Parity, cost: Parity) -> CheckedOutput:
    return CheckedOutput(
        index=parity.index,
        snr_db=_finite(parity.snr_db),
        max_abs_error=parity.max_abs,
        cosine=parity.cosine,
        top1_agreement=parity.top1,
        snr_db_converted=_finite(lowered.snr_db),
        snr_db_precision=_finite(cost.snr_db),
        degenerate=parity.degenerate,
    )


def _finite(ratio_db: float | None) -> float | None:
    """JSON has no number for infinity."""
    return None if ratio_db is None else max(ratio_db, NO_LIKENESS_DB)


TIMEOUT_S = 600.0
_MISSING_OPERATOR = re.compile(r"Missing operator: \[\d+\] ([\w:.]+)")


def execute(
    program: Path, external_data: Path | None, method: str, inputs: Sequence[Any]
) -> list[torch.Tensor]:
    """Returns the output tensors of one execution; a None among the outputs is left out.

    Raises ExportError when the runtime refuses the program or crashes.
    """
    with scratch_folder("check") as folder:
        request = make_request(program, external_data, method, inputs, folder)
        _run(program, method, runner_arguments(request))
        return [read() for read in find_outputs(request)]


def make_request(
    program: Path, external_data: Path | None, method: str, inputs: Sequence[Any], folder: Path
) -> RunnerRequest:
    """Writes the tensors of flat `inputs` into `folder`, and asks for one inference that keeps its outputs."""
    input_tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    files = [folder / f"input_{index}.bin" for index in range(len(input_tensors))]
    for file, value in zip(files, input_tensors, strict=True):
        file.write_bytes(tensors.raw_bytes(value))
    return RunnerRequest(
        model=program,
        data=external_data,
        method=method,
        inputs=tuple(files),
        shapes=tuple("x".join(map(str, value.shape)) or "scalar" for value in input_tensors),
        iterations=1,
        outputs=folder / "outputs",
        result=folder / "result.json",
    )


def find_outputs(request: RunnerRequest) -> list[Callable[[], torch.Tensor]]:
    """Returns what reads each output tensor of a launch that ended well, in its logical shape."""
    described = ask_host_runner(["--describe", "--model", request.model])
    methods = {method["name"]: method for method in parse_json(described.stdout)["methods"]}
    outputs = methods[request.method]["outputs"]
    orders = [output["dim_order"] for output in outputs if output["kind"] == "tensor"]
    entries = read_json(request.result, way_out="export again")["outputs"]
    folder = request.result.parent
    records = [record for record in entries if record["dtype"] != "none"]
    return [
        partial(_read_output, folder, record, order)
        for record, order in zip(records, orders, strict=True)
    ]


def _run(program: Path, method: str, arguments: list[str]) -> None:
    completed = ask_host_runner(arguments, timeout_s=TIMEOUT_S)
    if completed.exit_code == 0:
        return
    messages = [line for line in completed.stderr.splitlines() if "cpuinfo_utils" not in line]
    detail = messages[-1].removeprefix("etprof-runner: ") if messages else "it says nothing"
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


def _read_output(folder: Path, record: dict[str, Any], order: list[int]) -> torch.Tensor:
    """Returns an output in its logical shape; its memory keeps the program's order."""
    file = folder / "outputs" / Path(record["path"]).name
    content = bytearray(read_bounded(file, MOST_PROGRAM_BYTES))
    dtype, shape = getattr(torch, record["dtype"]), record["shape"]
    if not content:
        return torch.empty(shape, dtype=dtype)
    stored = torch.frombuffer(content, dtype=dtype).reshape([shape[axis] for axis in order])
    return stored.permute([order.index(axis) for axis in range(len(order))])


RELATIVE_TOLERANCE = 1e-3
_TIMEOUT_S = 600.0
_CAUSE = re.compile(r"\[\w+\.cpp:|\w+Error: ")


def bundle_program(
    program: upstream.ExecutorchProgramManager,
    methods: Mapping[str, ExportMethod],
    references: Mapping[str, Sequence[Any]],
) -> bytes:
    """Returns the bundled program with one test case per method.

    Raises ExportError when ExecuTorch cannot store the inputs or outputs.
    """
    suites = [
        upstream.MethodTestSuite(
            method_name=name,
            test_cases=[
                upstream.MethodTestCase(
                    inputs=tensors.flatten((method.inputs, dict(method.kwarg_inputs))),
                    expected_outputs=list(references[name]),
                )
            ],
        )
        for name, method in methods.items()
    ]
    for suite in suites:
        _check_order("input", suite.test_cases[0].inputs)
        _check_order("output", references[suite.method_name])
    try:
        bundled = upstream.BundledProgram(program, suites)
        content: bytes = upstream.serialize_from_bundled_program_to_flatbuffer(bundled)
    # ExecuTorch asserts what it supports, of types and of counts.
    except Exception as error:
        msg = f"cannot make the bundled program: {lowering.root_cause(error)}; leave --bundle out"
        raise ExportError(msg) from error
    return content


def check_bundle(bundle: Path, errors: Mapping[str, float]) -> dict[str, BundleCheck]:
    """Runs the test cases with ExecuTorch's runtime, which compares the outputs itself.

    `errors` has the largest error that etprof-runner's outputs have; twice that is tolerated, as the
    Python runtime's portable kernels round otherwise.
    """
    tolerances = {name: 2 * error + 1e-6 for name, error in errors.items()}
    completed = run_command(
        [
            # -P: the current folder, which may hold a stranger's json.py, is no place for modules.
            *(sys.executable, "-P", "-m", bundle_runtime.__name__, bundle, str(RELATIVE_TOLERANCE)),
            *(f"{name}={tolerance!r}" for name, tolerance in tolerances.items()),
        ],
        timeout_s=_TIMEOUT_S,
    )
    problems = _read_problems(completed, list(tolerances))
    return {name: _make_check(problems[name], tolerances[name]) for name in tolerances}


def leave_unchecked(errors: Mapping[str, float]) -> dict[str, BundleCheck]:
    """Returns the results for a program whose weights are in a file of their own."""
    problem = (
        "the weights are in a .ptd, which ExecuTorch's check of bundled programs does not take"
    )
    return {name: _make_check(problem, 0.0) for name in errors}


def _make_check(problem: str | None, tolerance: float) -> BundleCheck:
    different = problem is not None and problem.startswith(bundle_runtime.DIFFERENT)
    return BundleCheck(
        passed=True if problem is None else (False if different else None),
        absolute_tolerance=tolerance,
        relative_tolerance=RELATIVE_TOLERANCE,
        problem=problem,
    )


def _read_problems(completed: Completed, methods: list[str]) -> dict[str, str | None]:
    if completed.exit_code == 0:
        problems: dict[str, str | None] = parse_json(completed.stdout.splitlines()[-1])
        return problems
    # ExecuTorch's own lines and Python's exceptions; the libraries say more that is of no use.
    messages = [line for line in completed.stderr.splitlines() if _CAUSE.match(line)]
    ended = f"ExecuTorch's Python runtime ended with code {completed.exit_code}"
    return dict.fromkeys(methods, f"{ended}: {messages[-1]}" if messages else ended)


def _check_order(kind: str, values: Sequence[Any]) -> None:
    """Raises ExportError for a tensor that is not stored row by row; a bundle has no other form."""
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor) and list(value.dim_order()) != list(range(value.dim())):
            order = list(value.dim_order())
            msg = (
                f"ExecuTorch's bundles have no room for {kind} {index} in dimension order {order}; "
            )
            raise ExportError(msg + "leave --bundle out")
