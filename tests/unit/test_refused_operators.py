"""What is said of operators that ExecuTorch's runtime refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from etprof.export.changes.failed_lowering import REWRITE
from etprof.export.changes.fallbacks import RefusedProgramError, explain_refusal
from etprof.export.operators import name_operator
from etprof.export.upstream import EXECUTORCH_VERSION
from etprof.run.delegation import Origin, SourceLine
from etprof.run.program import Fallback

LINE = SourceLine(file="net.py", line=12, code="y = x.sort()")
ORIGIN = Origin(module_path="head.pool", source=LINE)


def lowered(*operators: tuple[str, int | None, int | None]) -> Any:  # noqa: ANN401 - the part asked
    """A method of operators by kind, instruction and delegate."""
    listed = [
        SimpleNamespace(operator=kind, instruction=instruction, delegate=delegate, origin=ORIGIN)
        for kind, instruction, delegate in operators
    ]
    return SimpleNamespace(methods={"forward": SimpleNamespace(operators=listed)})


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        (ORIGIN, "sort of module head.pool (net.py:12: y = x.sort())"),
        (Origin(module_path="head"), "sort of module head"),
        (Origin(source=LINE), "sort (net.py:12: y = x.sort())"),
        (Origin(), "sort"),
    ],
)
def test_an_operator_is_named_by_what_is_known_of_it(origin: Origin, name: str) -> None:
    assert name_operator("sort", origin) == name


def test_a_refusal_says_the_method_and_what_else_to_try() -> None:
    error = RefusedProgramError("forward", "error 18")
    assert (error.method, error.reason) == ("forward", "error 18")
    assert str(error) == (
        "ExecuTorch's runtime cannot execute method 'forward': error 18; export it for another "
        "backend, such as --backend portable, or in another precision"
    )


def test_what_stays_outside_unless_it_must_not_is_named() -> None:
    error = RefusedProgramError("forward", "node 3")
    fallbacks = {n: Fallback(method="forward", name=n, reason="node 3") for n in ("sort", "topk")}
    assert str(explain_refusal(error, lowered(), fallbacks)) == (
        "ExecuTorch's runtime refuses sort, topk in method 'forward': node 3; leave --strict out "
        f"and it stays outside the delegate, or {REWRITE}"
    )


def test_the_kernel_whose_instruction_failed_is_named() -> None:
    program = lowered(("add", 6, None), ("conv", 7, 0), ("sort", 7, None), ("topk", None, None))
    for reason in ("failed at instruction 7", "it failed at instruction 0:7: 0x12"):
        error = RefusedProgramError("forward", reason)
        assert str(explain_refusal(error, program, {})) == (
            f"ExecuTorch's runtime refuses sort of module head.pool (net.py:12: y = x.sort()) in "
            f"method 'forward': {reason}; ExecuTorch {EXECUTORCH_VERSION} has no kernel that takes "
            f"it; {REWRITE}"
        )


@pytest.mark.parametrize("reason", ["failed at instruction 9", "error 18"])
def test_an_error_that_names_no_operator_stays_as_it_is(reason: str) -> None:
    error = RefusedProgramError("forward", reason)
    assert explain_refusal(error, lowered(("sort", 7, None)), {}) is error
