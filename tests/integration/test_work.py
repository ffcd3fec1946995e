"""Issue 20 under emulation: work adds up to the model, whatever threads, repeats and lengths."""

from __future__ import annotations

import textwrap
from dataclasses import astuple
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.split.evidence import read_evidence
from etprof.analysis.split.work import ProductWork, add_work, load_bytes, tile_uses
from etprof.base.errors import EtprofError
from etprof.export.request import ExportRequest
from etprof.run.program import describe_program
from etprof.targets.emulator.installation import locate
from tests.integration.emulated import Laboratory, Setup

if TYPE_CHECKING:
    from etprof.analysis.split.evidence import ModeEvidence
    from tests.integration.conftest import Exports

try:
    locate()
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

FC = """
    import torch
    from torch import nn

    class Fc(nn.Module):
        batch = {batch}

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(33, 130), nn.ReLU(), nn.Linear(130, 17))

        def forward(self, x):
            return self.layers(x)

        def get_eager_model(self):
            return self

        def get_example_inputs(self):
            return (torch.randn({batch}, 33),)
"""
FC_MACS = 33 * 130 + 130 * 17
"""Of a row."""
TOY_MACS = 16 * 16 * 32 * 27 + 16 * 16 * 32 * 64 + 64 * 10
"""Of toy_cnn without its depthwise convolution, which has no SME kernel."""


@pytest.fixture(scope="module")
def laboratory(exports: Exports, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    folder = tmp_path_factory.mktemp("work")
    made = Laboratory(folder, exports)
    for batch in (5, 32, 64):
        file = folder / f"fc{batch}.py"
        file.write_text(textwrap.dedent(FC.format(batch=batch)))
        files = exports.get(ExportRequest(f"{file}:Fc", "fp32"))
        made.programs[f"fc{batch}"] = describe_program(files.pte)
    return made


def work_of(counted: ModeEvidence) -> ProductWork:
    found = add_work(tile_uses({"sme2": counted}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("program", "macs"), [("toy_fp32", TOY_MACS), ("fc5", 5 * FC_MACS), ("fc64", 64 * FC_MACS)]
)
def test_work_adds_up_to_the_model_and_its_padding(
    laboratory: Laboratory, program: str, macs: int
) -> None:
    counted = {
        bits: laboratory.evidence(program, "sme2", svl_bits=bits) for bits in (128, 256, 512)
    }
    found = {bits: work_of(each) for bits, each in counted.items()}
    for bits, work in found.items():
        assert work.macs == macs
        # AND what the calls were given is what is needed and the padding of k
        products = [k for o in counted[bits].operators for k in o.compute_kernels]
        assert sum(each.macs or 0 for each in products) == work.macs + work.k_padding
        elements = [use.computed * (use.k_computed or 0) for use in tile_uses({"m": counted[bits]})]
        assert sum(elements) == work.computed
        assert load_bytes(counted[bits])
    paddings = [found[bits].tile_padding for bits in (128, 256, 512)]
    assert paddings == sorted(paddings), "a longer vector leaves more of its tiles unused"


@pytest.mark.parametrize("program", ["toy_fp32", "toy_fp16", "fc5", "fc64"])
def test_work_is_the_same_with_any_threads_and_again(laboratory: Laboratory, program: str) -> None:
    first = laboratory.evidence(program, "sme2")
    others = [
        read_evidence(laboratory.trace(Setup(program, "sme2", threads=threads, repetition=again)))
        for threads, again in ((1, 1), (2, 0), (4, 0))
    ]
    assert [work_of(each) for each in others] == [work_of(first)] * 3
    assert {load_bytes(each) for each in others} == {load_bytes(first)}


def test_work_is_linear_in_the_batch(laboratory: Laboratory) -> None:
    # GIVEN batches of whole tiles
    once, twice = (work_of(laboratory.evidence(f"fc{n}", "sme2")) for n in (32, 64))
    assert astuple(twice) == tuple(2 * each for each in astuple(once))
