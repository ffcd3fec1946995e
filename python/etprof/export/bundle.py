"""Writes a bundled program, the program with its test cases inside, and has ExecuTorch verify it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from etprof.base.errors import ExportError
from etprof.base.json_input import parse_json
from etprof.base.process import run_command
from etprof.export import bundle_runtime, lowering, tensors, upstream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from etprof.base.process import Completed
    from etprof.export.eager_model import ExportMethod

RELATIVE_TOLERANCE = 1e-3
_TIMEOUT_S = 600.0
_CAUSE = re.compile(r"\[\w+\.cpp:|\w+Error: ")


@dataclass(frozen=True)
class BundleCheck:
    """What ExecuTorch's own check says of one method's test case."""

    passed: bool | None
    """None when its Python runtime cannot run the method; it has fewer kernels than a runner."""
    absolute_tolerance: float
    relative_tolerance: float
    problem: str | None


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
    said = [line for line in completed.stderr.splitlines() if _CAUSE.match(line)]
    ended = f"ExecuTorch's Python runtime ended with code {completed.exit_code}"
    return dict.fromkeys(methods, f"{ended}: {said[-1]}" if said else ended)


def _check_order(what: str, values: Sequence[Any]) -> None:
    """Raises ExportError for a tensor that is not stored row by row; a bundle has no other form."""
    for index, value in enumerate(values):
        if isinstance(value, torch.Tensor) and list(value.dim_order()) != list(range(value.dim())):
            order = list(value.dim_order())
            msg = (
                f"ExecuTorch's bundles have no room for {what} {index} in dimension order {order}; "
            )
            raise ExportError(msg + "leave --bundle out")
