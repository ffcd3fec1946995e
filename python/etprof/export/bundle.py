"""Writes a bundled program: the program with inputs and expected outputs inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etprof.export import tensors, upstream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.export.eager_model import ExportMethod


def bundle_program(
    program: upstream.ExecutorchProgramManager,
    methods: Mapping[str, ExportMethod],
    references: Mapping[str, Sequence[Any]],
) -> bytes:
    """Returns the bundled program with one test case per method."""
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
    bundled = upstream.BundledProgram(program, suites)
    content: bytes = upstream.serialize_from_bundled_program_to_flatbuffer(bundled)
    return content
