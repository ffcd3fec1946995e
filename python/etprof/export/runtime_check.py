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
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from etprof.base.atomic import scratch_folder
from etprof.base.errors import ExportError, first_line
from etprof.base.files import MOST_PROGRAM_BYTES, read_bounded
from etprof.base.json_input import parse_json, read_json
from etprof.base.process import run_command
from etprof.export import bundle_runtime, lowering, tensors, upstream
from etprof.export.changes.failed_lowering import root_cause
from etprof.export.changes.fallbacks import MissingKernelError, RefusedProgramError
from etprof.export.state import (
    follow_steps,
    run_apart,
    run_eager,
    run_steps,
    unchanged_buffers,
)
from etprof.run.accuracy import (
    NO_LIKENESS_DB,
    InputsVerdict,
    Verdict,
    judge_lowering,
    judge_precision,
    worst_step,
)
from etprof.run.program import BundleCheck, CheckedOutput, ExportCheck
from etprof.statistics.likeness import compare, number_kind
from etprof.targets.request import RunnerRequest, runner_arguments
from etprof.targets.runner import ask_host_runner

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from etprof.base.process import Completed
    from etprof.export.quality.input_cases import InputCase
    from etprof.export.state import EagerSteps
    from etprof.model_registry.eager_model import ExportMethod
    from etprof.run.accuracy import Floors, Question
    from etprof.statistics.likeness import Parity


@dataclass(frozen=True)
class CheckedMethod:
    """What some inferences in a row of a method gave, and how right that is."""

    check: ExportCheck
    outputs: list[torch.Tensor | None]
    """Of the first inference."""
    converted: EagerSteps
    """What the converted eager model gives for the same inputs."""


def check_program(  # noqa: PLR0913 - the program, what it should give, and how near
    pte: Path,
    ptd: Path | None,
    name: str,
    method: ExportMethod,
    references: EagerSteps,
    *,
    precision: str,
    floors: Floors,
    carried: Collection[str] = (),
    cases: Iterable[InputCase] = (),
    load_tracing: Callable[[], tuple[ExportMethod, ExportMethod]] | None = None,
) -> CheckedMethod:
    """Executes method `name` from its initial state and answers both questions on its outputs.

    Raises ExportError when the runtime refuses the program.

    Args:
        pte: The program.
        ptd: Its weights, where they are in a file of their own.
        name: The method's name.
        method: The method as it was lowered, cast or quantised.
        references: What the float32 model gives, inference by inference.
        precision: Its name.
        floors: The least likeness to the float32 model that is good enough.
        carried: Paths of the buffers that the program changes and keeps.
        cases: Further inputs on which it has to be right.
        load_tracing: Makes the float32 method and its trace anew, for a method that is a trace itself.
    """
    converted = _follow_converted(name, method, references, precision)
    step_outputs = execute_steps(pte, ptd, name, converted.inputs)
    steps = [
        _CheckedStep(
            step,
            _align(name, values, references.of(step)),
            converted.of(step),
            references.of(step),
            floors,
        )
        for step, values in enumerate(step_outputs, 1)
    ]
    # Those that repeat the first say nothing of their own.
    has_state = bool(references.changed)
    judged = [
        step for step in steps if has_state or step is steps[0] or step.differs_from(steps[0])
    ]
    verdicts = _judge_steps(judged, precision)
    if has_state and any(verdict.answer == "failed" for verdict in verdicts):
        hint = explain_state(method, references, steps, carried)
        blamed = next(verdict for verdict in verdicts if verdict.answer == "failed")
        verdicts[verdicts.index(blamed)] = _with_hint(blamed, hint)
    if has_state and load_tracing is not None:
        verdicts = _judge_tracing(verdicts, *load_tracing())
    further_inputs = []
    for case in cases:
        verdict, failed = _check_case(pte, ptd, name, case=case, precision=precision, floors=floors)
        further_inputs.append(verdict)
        verdicts = [
            failed.get(example.question, example) if example.answer != "failed" else example
            for example in verdicts
        ]
    check = ExportCheck(
        minimum_snr_db=floors.snr_db,
        passed=all(verdict.answer != "failed" for verdict in verdicts),
        floors=floors,
        verdicts=tuple(verdicts),
        outputs=tuple(itertools.chain.from_iterable(step.rows() for step in judged)),
        further_inputs=tuple(further_inputs),
    )
    return CheckedMethod(check, steps[0].outputs, converted)


def _judge_tracing(
    verdicts: list[Verdict], eager: ExportMethod, trace: ExportMethod
) -> list[Verdict]:
    """Returns the verdicts, with that on the lowering failed where the trace has another state.

    A quantised model is a trace, and what tracing got wrong of its state the converted model has
    wrong too: beside the rounding of 8 bits that hardly shows.
    """
    expected = run_steps(eager)
    traced = follow_steps(trace, expected)
    verdict = worst_step(
        {
            step: judge_lowering(_compare(traced.of(step), expected.of(step)), "fp32", {})
            for step in range(1, expected.count + 1)
        }
    )
    if verdict.answer != "failed":
        return verdicts
    return [verdict if example.question == "lowering" else example for example in verdicts]


def _follow_converted(
    name: str, method: ExportMethod, references: EagerSteps, precision: str
) -> EagerSteps:
    """Runs the converted model in eager PyTorch; raises ExportError where that cannot."""
    try:
        return follow_steps(method, references)
    # A model's code, or a kernel that PyTorch lacks in this precision, may raise anything.
    except Exception as error:
        raise ExportError(
            f"method {name!r} in {precision} fails in eager PyTorch, so that nothing says what the "
            f"program should give: {first_line(error)}{lowering.blamed_line(error)}; export it as fp32"
        ) from error


def _check_case(  # noqa: PLR0913 - keyword-only: the program, the inputs, and how near
    pte: Path,
    ptd: Path | None,
    name: str,
    *,
    case: InputCase,
    precision: str,
    floors: Floors,
) -> tuple[InputsVerdict, dict[Question, Verdict]]:
    """Returns whether a program is right on further inputs, and the verdicts that it fails."""
    try:
        converted = run_eager(case.method)
        eager, trace = (None, None) if case.tracing is None else map(run_eager, case.tracing)
    # The model's own code refuses these inputs: that says nothing of the program.
    except Exception as error:  # noqa: BLE001
        reason = f"the eager model fails on them: {first_line(error)}"
        return InputsVerdict(inputs=case.name, answer="unknown", reason=reason), {}
    exact = converted if case.references is None else case.references
    flat = tensors.flatten((case.method.inputs, dict(case.method.kwarg_inputs)))
    try:
        outputs = _align(name, execute(pte, ptd, name, flat), converted)
        parities, lowered, cost = _CheckedStep(1, outputs, converted, exact, floors).parities
    except ExportError as error:
        reason = f"on {case.name}, {error}"
        failed = Verdict(question="lowering", answer="failed", reason=reason)
        return InputsVerdict(inputs=case.name, answer="failed", reason=reason), {"lowering": failed}
    costs = {parity.index: parity for parity in cost}
    are_made_up = case.references is None
    verdicts = [judge_lowering(lowered, precision, costs, are_made_up=are_made_up)]
    if eager is not None and trace is not None:
        verdicts.append(judge_lowering(_compare(trace, eager), "fp32", {}, are_made_up=True))
    if not are_made_up:
        verdicts.append(judge_precision(parities, floors, precision=precision, costs=costs))
    wrong: dict[Question, Verdict] = {
        verdict.question: verdict.model_copy(update={"reason": f"on {case.name}, {verdict.reason}"})
        for verdict in verdicts
        if verdict.answer == "failed"
    }
    judged = InputsVerdict(
        inputs=case.name,
        answer="failed" if wrong else verdicts[0].answer,
        snr_db_converted=verdicts[0].snr_db,
        snr_db=None if are_made_up else verdicts[-1].snr_db,
        reason="; ".join(verdict.reason for verdict in wrong.values()),
    )
    return judged, wrong


def _align(
    name: str, outputs: Sequence[torch.Tensor], references: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """Returns a program's outputs with None where eager has none; raises for another number."""
    expected = sum(reference is not None for reference in references)
    if len(outputs) != expected:
        msg = f"method {name!r} gives {len(outputs)} outputs, the eager model {expected}"
        raise ExportError(msg)
    remaining = iter(outputs)
    return [None if reference is None else next(remaining) for reference in references]


@dataclass(frozen=True)
class _CheckedStep:
    """One of several inferences in a row, of the program and of both eager models."""

    number: int
    outputs: list[torch.Tensor | None]
    converted: list[torch.Tensor | None]
    references: list[torch.Tensor | None]
    floors: Floors

    def differs_from(self, first: _CheckedStep) -> bool:
        """Whether the program gave something else."""
        pairs = zip(self.outputs, first.outputs, strict=True)
        return any(a is not None and b is not None and not _are_alike(a, b) for a, b in pairs)

    @cached_property
    def parities(self) -> tuple[list[Parity], list[Parity], list[Parity]]:
        """Of program and float32, program and converted, converted and float32."""
        program, converted, exact = self.outputs, self.converted, self.references
        least_db = self.floors.snr_db
        return (
            _compare(program, exact, least_db),
            _compare(program, converted, least_db),
            _compare(converted, exact, least_db),
        )

    def rows(self) -> Iterator[CheckedOutput]:
        """Yields what the manifest has of each output."""
        for parity, lowered, cost in zip(*self.parities, strict=True):
            yield CheckedOutput(
                index=parity.index,
                step=self.number,
                snr_db=_finite(parity.snr_db),
                max_abs_error=parity.max_abs,
                cosine=parity.cosine,
                top1_agreement=parity.top1,
                snr_db_converted=_finite(lowered.snr_db),
                snr_db_precision=_finite(cost.snr_db),
                degenerate=parity.degenerate,
                equal_share=parity.equal_share,
            )


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and torch.equal(
        one.contiguous().reshape(-1).view(torch.uint8),
        other.contiguous().reshape(-1).view(torch.uint8),
    )


def _compare(
    outputs: Sequence[torch.Tensor | None],
    references: Sequence[torch.Tensor | None],
    least_db: float | None = None,
) -> list[Parity]:
    return [
        compare_output(index, output, reference, least_db)
        for index, (output, reference) in enumerate(zip(outputs, references, strict=True))
        if output is not None and reference is not None
    ]


def _judge_steps(steps: Sequence[_CheckedStep], precision: str) -> list[Verdict]:
    lowering, good = {}, {}
    for step in steps:
        parities, lowered, cost = step.parities
        costs = {parity.index: parity for parity in cost}
        lowering[step.number] = judge_lowering(lowered, precision, costs)
        good[step.number] = judge_precision(parities, step.floors, precision=precision, costs=costs)
    return [worst_step(lowering), worst_step(good)]


def _with_hint(verdict: Verdict, hint: str) -> Verdict:
    if not hint:
        return verdict
    return verdict.model_copy(update={"reason": f"{verdict.reason}: {hint}"})


_ALIKE_DB = 40.0
"""Two runs of which one has another state are nearer to each other only by chance."""


def explain_state(
    method: ExportMethod,
    references: EagerSteps,
    steps: Sequence[_CheckedStep],
    carried: Collection[str],
) -> str:
    """Says which part of the state a program lacks or does not carry on; empty where that is not it.

    Args:
        method: The method as it was lowered.
        references: What the float32 model gives, inference by inference.
        steps: What the program gave, from the first inference.
        carried: Paths of the buffers that the program changes and keeps.
    """
    first = steps[0]
    lost = [path for path in references.changed if path not in carried]
    if lost and _is_near(first.outputs, first.references):
        names = ", ".join(map(repr, lost))
        return (
            f"calls change {names}, which the program does not carry from one inference to the "
            "next; make it a buffer (register_buffer) that forward changes in place"
        )
    separate_outputs = run_apart(method, len(steps))
    if all(
        _is_near(*pair)
        for pair in zip((step.outputs for step in steps), separate_outputs, strict=True)
    ):
        names = ", ".join(map(repr, references.changed))
        return f"every inference starts anew: the program does not carry {names} to the next"
    for name in references.changed:
        if _starts_at_zero(method, name, references, steps):
            return (
                f"the program lacks the initial state of buffer {name!r}, which starts at zero; "
                "export it again, or give the first state as an input"
            )
    return ""


def _starts_at_zero(
    method: ExportMethod, name: str, references: EagerSteps, steps: Sequence[_CheckedStep]
) -> bool:
    """Whether the program gives what the model gives whose buffer `name` starts at zero."""
    buffer = dict(method.module.named_buffers()).get(name)
    if buffer is None or not buffer.any():
        return False
    with unchanged_buffers(method.module):
        buffer.zero_()
        zeroed = follow_steps(method, references)
    return all(_is_near(step.outputs, zeroed.of(step.number)) for step in steps)


def _is_near(
    outputs: Sequence[torch.Tensor | None], references: Sequence[torch.Tensor | None]
) -> bool:
    return all(parity.is_within(_ALIKE_DB) for parity in _compare(outputs, references))


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
        kind=number_kind(str(output.dtype).removeprefix("torch.")),
    )


def _finite(ratio_db: float | None) -> float | None:
    """JSON has no number for infinity."""
    return None if ratio_db is None else max(ratio_db, NO_LIKENESS_DB)


TIMEOUT_S = 600.0
_MISSING_OPERATOR = re.compile(r"Missing operator: \[\d+\] ([\w:.]+)")


def execute(
    program: Path, external_data: Path | None, method: str, inputs: Sequence[Any]
) -> list[torch.Tensor]:
    """Returns the output tensors of one inference; raises as `execute_steps` does."""
    return execute_steps(program, external_data, method, [inputs])[0]


def execute_steps(
    program: Path, external_data: Path | None, method: str, steps: Sequence[Sequence[Any]]
) -> list[list[torch.Tensor]]:
    """Returns the output tensors of inferences in a row, each with its own flat inputs.

    They begin with the program's initial state. A None among the outputs is left out. Raises
    ExportError when the runtime refuses the program or crashes.
    """
    count = len(steps)
    with scratch_folder("check") as folder:
        request = make_request(program, external_data, method, steps, folder)
        _run(program, method, runner_arguments(request))
        return [[read() for read in find_outputs(request, step)] for step in range(1, count + 1)]


def make_request(
    program: Path,
    external_data: Path | None,
    method: str,
    steps: Sequence[Sequence[Any]],
    folder: Path,
) -> RunnerRequest:
    """Writes flat inputs of inferences in a row into `folder`, and asks for the outputs of all."""
    input_steps = [[value for value in step if isinstance(value, torch.Tensor)] for step in steps]
    files = [folder / f"input_{index}.bin" for index in range(len(input_steps[0]))]
    for file, values in zip(files, zip(*input_steps, strict=True), strict=True):
        file.write_bytes(b"".join(map(tensors.raw_bytes, values)))
    return RunnerRequest(
        model=program,
        data=external_data,
        method=method,
        inputs=tuple(files),
        shapes=tuple("x".join(map(str, value.shape)) or "scalar" for value in input_steps[0]),
        iterations=max(1, len(steps) - 1),
        outputs=folder / "outputs",
        output_steps=len(steps),
        step_inputs=bool(files) and len(steps) > 1,
        result=folder / "result.json",
    )


def find_outputs(request: RunnerRequest, step: int = 1) -> list[Callable[[], torch.Tensor]]:
    """Returns what reads each output tensor of an inference, of a launch that ended well."""
    described = ask_host_runner(["--describe", "--model", request.model])
    methods = {method["name"]: method for method in parse_json(described.stdout)["methods"]}
    outputs = methods[request.method]["outputs"]
    orders = [output["dim_order"] for output in outputs if output["kind"] == "tensor"]
    result = read_json(request.result, way_out="export again")
    later = (entry for entry in result["further_outputs"] if entry["step"] == step)
    entries = result["outputs"] if step == 1 else list(later)
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
        raise MissingKernelError(method, missing)
    if completed.exit_code < 0:
        msg = f"method {method!r} crashes ExecuTorch's runtime, as it would on a device: {detail}"
        raise ExportError(msg)
    # The runner's way out is for whoever was given the program.
    reason = re.search(r"\((.*)\): ", detail)
    raise RefusedProgramError(method, reason[1] if reason else detail)


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
        msg = f"cannot make the bundled program: {root_cause(error)}; leave --bundle out"
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
