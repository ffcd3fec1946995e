"""Further inputs on which a program is checked: which they are, and that no more are made than that."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim

from etprof.export import lowering
from etprof.export.quality.input_cases import InputCase, list_cases, run_samples
from etprof.export.tensors import flatten
from etprof.model_registry.eager_model import ExportMethod


class Sum(nn.Module):
    """Adds what a mask counts."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum(1)


class Doubled(nn.Module):
    """One input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def cases_of(method: ExportMethod) -> list[InputCase]:
    """Lists the cases of a method as it is."""
    references = run_samples(method, torch.float32)
    return [*list_cases(method, references, lowering.trace("forward", method))]


def test_a_model_of_fixed_shapes_has_no_further_inputs() -> None:
    assert cases_of(ExportMethod(Doubled(), (torch.rand(2, 3),))) == []


def test_sizes_are_the_ends_and_the_middle() -> None:
    length = Dim("length", min=3, max=21)
    method = ExportMethod(
        Doubled(), (torch.arange(8.0).reshape(1, 8),), dynamic_shapes=({1: length},)
    )
    cases = cases_of(method)
    assert [case.name for case in cases] == ["inputs of 1x3", "inputs of 1x12", "inputs of 1x21"]
    (values,) = cases[1].method.inputs
    assert values.tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]]
    assert all(case.references is None and case.tracing is None for case in cases)


def test_the_examples_own_size_is_no_further_one() -> None:
    length = Dim("length", min=3, max=21)
    cases = cases_of(ExportMethod(Doubled(), (torch.rand(1, 12),), dynamic_shapes=({1: length},)))
    assert [case.name for case in cases] == ["inputs of 1x3", "inputs of 1x21"]


@pytest.mark.parametrize(("most", "count"), [(128, 3), (129, 2), (100_000, 1)])
def test_inputs_that_are_far_larger_are_left_out(most: int, count: int) -> None:
    """Sixteen times the elements of the example at most."""
    length = Dim("length", min=2, max=most)
    cases = cases_of(ExportMethod(Doubled(), (torch.rand(1, 8),), dynamic_shapes=({1: length},)))
    assert len(cases) == count
    assert cases[0].name == "inputs of 1x2"


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (torch.ones(1, 4, dtype=torch.bool), ["a padded mask as input 1"]),
        (torch.tensor([[True, True, False, False]]), ["a full mask as input 1"]),
        (torch.tensor([[1, 0, 1, 0]]), ["a full mask as input 1", "a padded mask as input 1"]),
        (torch.tensor([[1.0, 1.0, 1.0, 1.0]]), ["a padded mask as input 1"]),
        (torch.tensor([[1, 2, 0, 1]]), []),
        (torch.ones(1, 1, dtype=torch.bool), []),
    ],
)
def test_masks_are_full_and_padded(mask: torch.Tensor, names: list[str]) -> None:
    cases = cases_of(ExportMethod(Sum(), (torch.rand(1, mask.shape[1]), mask)))
    assert [case.name for case in cases] == names
    padded = [case.method.inputs[1] for case in cases if "padded" in case.name]
    assert all(values.tolist() == [[1, 1, 0, 0]] for values in padded)


def test_zeros_and_ones_of_another_name_are_no_mask() -> None:
    assert cases_of(ExportMethod(Doubled(), (torch.ones(1, 4),))) == []


def test_samples_have_the_float32_models_outputs() -> None:
    example, *samples = (torch.full((1, 2), float(value)) for value in range(5))
    method = ExportMethod(Doubled(), (example,), calibration=[(example,), *((s,) for s in samples)])
    cases = cases_of(method)
    # The example is none of them, and two are enough.
    assert [case.name for case in cases] == ["calibration sample 2", "calibration sample 3"]
    for case, sample in zip(cases, samples, strict=False):
        assert torch.equal(flatten(case.method.inputs)[0], sample)
        assert case.references is not None
        assert torch.equal(case.references[0], sample * 2)


def test_a_trace_is_compared_with_the_model_that_it_is_of() -> None:
    length = Dim("length", min=3, max=21)
    method = ExportMethod(Doubled(), (torch.rand(1, 8),), dynamic_shapes=({1: length},))
    program = lowering.trace("forward", method)
    loads = []

    def load() -> tuple[ExportMethod, ExportMethod]:
        loads.append(1)
        return method, method

    cases = [*list_cases(method, {}, program, load)]
    assert len(loads) == 1
    for case in cases:
        assert case.tracing is not None
        assert all(side.inputs is case.method.inputs for side in case.tracing)
    # AND nothing is loaded where there is nothing to compare
    plain = ExportMethod(Doubled(), (torch.rand(1, 8),))
    assert [*list_cases(plain, {}, lowering.trace("forward", plain), load)] == []
    assert len(loads) == 1


def test_further_inputs_lie_in_memory_as_the_example_does() -> None:
    """A program for NHWC images reads the bytes of its inputs in that order."""
    rows = Dim("rows", min=2, max=9)
    image = torch.rand(1, 3, 5, 4).to(memory_format=torch.channels_last)
    sample = torch.rand(1, 3, 5, 4)
    method = ExportMethod(Doubled(), (image,), dynamic_shapes=({2: rows},), calibration=[(sample,)])
    cases = cases_of(method)
    assert len(cases) == 3
    for case in cases:
        (values,) = case.method.inputs
        assert values.dim_order() == image.dim_order()
    assert torch.equal(cases[0].method.inputs[0], sample)


def test_samples_are_told_apart_before_they_are_rounded() -> None:
    """In half precision the first sample is the example: the second had its reference then."""
    example = torch.full((1, 2), 1.0)
    samples = [example + 1e-5, torch.full((1, 2), 3.0)]
    method = ExportMethod(Doubled(), (example,), calibration=[(s,) for s in samples])
    references = run_samples(method, torch.float32)
    half = lowering.cast_method(method, torch.float16)
    cases = [*list_cases(half, references, lowering.trace("forward", half))]
    assert len(cases) == 2
    for case, value in zip(cases, (2.0, 6.0), strict=True):
        assert case.references is not None
        assert case.references[0].tolist()[0] == pytest.approx([value, value], abs=1e-3)
        assert case.method.inputs[0].tolist()[0] == pytest.approx([value / 2] * 2)
