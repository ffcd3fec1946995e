"""SME2 on and off under emulation: exact kernels, the switch, attribution, parity, refusals."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.split.work import tile_share, tile_uses
from etprof.backends.library import names_of_library, unknown_names
from etprof.base.errors import EtprofError, TargetError, UsageError
from etprof.base.process import run_command
from etprof.targets.emulator.installation import locate
from etprof.targets.emulator.target import EmulatorTarget
from tests.integration.emulated import (
    PROGRAMS,
    Laboratory,
    Setup,
    assess_kernels,
    operator_calls,
    untimed,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.conftest import Exports

try:
    locate()
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

FOUR_MODELS = ("toy_fp32", "toy_fp16", "toy_int8", "mobilenet_v2")
ALL = sorted(PROGRAMS)
COUNTED_TWICE = [name for name in ALL if name != "toy_fp32"]
PACKED = ("PF32", "PF16", "PQS8", "QP8")


@pytest.fixture(scope="module")
def laboratory(exports: Exports, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("emulated"), exports)


def test_fp16_types_become_packed_with_sme2(laboratory: Laboratory) -> None:
    found = laboratory.evidence("toy_fp16", "sme2")
    packed = [o for o in found.operators if "PF16" in o.parsed_name.data_types]
    assert {o.parsed_name.base for o in packed} == {"Convolution", "Fully Connected"}
    assert all(o.level == "sme2" and o.grade == "A" for o in packed)


@pytest.mark.parametrize(
    ("library", "kinds"),
    [
        ("backend_xnnpack", {"label", "microkernel"}),
        ("kernels_optimized", {"kernel"}),
        ("kernels_quantized", {"kernel"}),
    ],
)
def test_every_name_in_the_libraries_for_arm_can_be_read(library: str, kinds: set[str]) -> None:
    """A microkernel whose name says nothing to etprof would count as none."""
    names = names_of_library(locate().sdk / "lib" / f"libexecutorch_{library}.so")
    assert {name.kind for name in names} == kinds
    assert [name.name for name in unknown_names(names)] == []


@pytest.mark.parametrize("program", ALL)
def test_sme2_mode_calls_sme2_kernels(laboratory: Laboratory, program: str) -> None:
    found = laboratory.evidence(program, "sme2")
    assert found.mode_in_force == "sme2"
    assert found.count_level("sme2") > 0
    assert found.count_level("sme") == 0, "with SME2 there, SME1 computes nothing"
    assert found.steady


@pytest.mark.parametrize("program", ALL)
def test_sme1_mode_calls_sme_and_no_sme2_kernels(laboratory: Laboratory, program: str) -> None:
    found = laboratory.evidence(program, "sme1")
    assert found.mode_in_force == "sme1"
    assert found.count_level("sme") > 0
    assert not [name for name in found.kernel_calls if "_sme2_" in name]


@pytest.mark.parametrize("program", ALL)
def test_off_mode_calls_neither(laboratory: Laboratory, program: str) -> None:
    found = laboratory.evidence(program, "off")
    assert found.mode_in_force == "off"
    called = [*found.kernel_calls, *(each.name for each in found.load)]
    assert not [name for name in called if "_sme" in name]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("program", FOUR_MODELS)
def test_the_switch_equals_the_cpu(laboratory: Laboratory, program: str, threads: int) -> None:
    # GIVEN the same program with --sme off, and on a CPU without SME
    switched = laboratory.trace(Setup(program, "off", "max", threads))
    without = laboratory.trace(Setup(program, "auto", "max,sme=off", threads))
    # THEN every operator has the same name and the same calls of the same microkernels
    assert operator_calls(switched) == operator_calls(without)
    assert switched.kernels == without.kernels
    assert switched.sme.shown_features == without.sme.shown_features == ()
    assert "sme2" in (switched.sme.cpu_features or ())


@pytest.mark.parametrize("program", ["toy_fp16", "toy_int8_dynamic"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_repeated_run_gives_the_same_counts(
    laboratory: Laboratory, program: str, threads: int
) -> None:
    first = laboratory.trace(Setup(program, "sme2", threads=threads))
    second = laboratory.trace(Setup(program, "sme2", threads=threads, repetition=1))
    assert operator_calls(first) == operator_calls(second)


@pytest.mark.parametrize("program", FOUR_MODELS)
def test_more_threads_only_cut_the_work_finer(laboratory: Laboratory, program: str) -> None:
    # XNNPACK makes tiles smaller for more threads (xnn_gemm_best_tile_size), never other kernels.
    one = laboratory.evidence(program, "sme2", threads=1)
    two = laboratory.evidence(program, "sme2", threads=2)
    assert one.load == two.load
    for alone, shared in zip(one.operators, two.operators, strict=True):
        assert alone.name == shared.name
        assert [k.name for k in alone.kernels] == [k.name for k in shared.kernels]
        for few, many in zip(alone.kernels, shared.kernels, strict=True):
            assert many.calls >= few.calls


@pytest.mark.parametrize("mode", ["sme2", "sme1"])
@pytest.mark.parametrize("program", ["toy_fp32", "toy_fp16", "mobilenet_v2"])
def test_calls_of_the_operators_add_up_to_the_run(
    laboratory: Laboratory, program: str, mode: str
) -> None:
    trace = laboratory.trace(Setup(program, mode))
    assert trace.all_operators_named
    totals = {k.name: k.execution_calls for k in trace.kernels if any(k.execution_calls)}
    sums: dict[str, tuple[int, ...]] = {}
    for operator in trace.operators:
        for kernel in operator.kernels:
            before = sums.get(kernel.name, (0,) * len(kernel.execution_calls))
            sums[kernel.name] = tuple(map(sum, zip(before, kernel.execution_calls, strict=True)))
    assert sums == totals
    assert not any(e.kernels_outside_operators for e in trace.executions)


@pytest.mark.parametrize("mode", ["sme2", "sme1", "off"])
@pytest.mark.parametrize("program", COUNTED_TWICE)
def test_a_debugger_counts_what_the_runner_counts(
    laboratory: Laboratory, program: str, mode: str
) -> None:
    """By operator, execution and sizes: two ways that share neither library nor process."""
    if shutil.which("gdb-multiarch") is None:
        pytest.skip("no gdb-multiarch here")
    by_runner = laboratory.trace(Setup(program, mode))
    by_debugger = laboratory.trace(Setup(program, mode, debugger="gdb-multiarch"))
    assert (by_runner.counted_by, by_debugger.counted_by) == ("runner", "debugger")
    assert untimed(by_debugger) == untimed(by_runner)
    assert (by_debugger.kernels == ()) == (mode == "off" and "dynamic" not in program)


def test_a_debugger_counts_one_thread_in_the_emulator(laboratory: Laboratory) -> None:
    """Of several, qemu lets the others run past their breakpoints: calls would be missing."""
    request = laboratory.request(Setup("toy_fp16", "sme2", threads=2))
    with pytest.raises(UsageError, match="give --threads 1"):
        EmulatorTarget(debugger="gdb-multiarch").run(request)


@pytest.mark.parametrize("program", ["toy_fp16", "mobilenet_v2"])
def test_operators_that_are_not_packed_call_no_sme_kernel(
    laboratory: Laboratory, program: str
) -> None:
    for name, calls in operator_calls(laboratory.trace(Setup(program, "sme2"))):
        if not any(kind in name for kind in PACKED) or "DWConv" in name:
            assert not calls, name


def test_mobilenet_has_its_known_layers(laboratory: Laboratory) -> None:
    # GIVEN MobileNetV2's 52 convolutions, 17 of them depthwise, and its classifier
    operators = laboratory.evidence("mobilenet_v2", "sme2").operators
    depthwise = [o for o in operators if o.parsed_name.microkernel_type == "DWConv"]
    products = [o for o in operators if o.parsed_name.microkernel_type in {"GEMM", "IGEMM"}]
    assert (len(depthwise), len(products)) == (17, 36)
    assert all(not o.kernels for o in depthwise)


@pytest.mark.parametrize("program", ALL)
def test_outputs_agree_between_modes_and_with_eager(
    laboratory: Laboratory, program: str, tmp_path: Path
) -> None:
    gathered = assess_kernels(laboratory.program(program), EmulatorTarget(), tmp_path)
    compared = {(p.candidate, p.against) for p in gathered.outputs}
    modes = {("sme2", "off"), ("sme1", "off")}
    assert compared == modes | {(mode, "eager") for mode in ("sme2", "sme1", "off")}
    assert [p for p in gathered.outputs if not p.is_within] == []


def test_a_mode_that_the_cpu_lacks_is_refused(laboratory: Laboratory) -> None:
    for mode, reason in (
        ("sme2", "--sme sme2: this CPU has no SME2; use --sme off, or a CPU with SME2"),
        ("sme1", "--sme sme1: this CPU has no SME; use --sme off, or a CPU with SME"),
    ):
        with pytest.raises(TargetError) as caught:
            laboratory.trace(Setup("toy_fp16", mode, "max,sme=off"))
        assert str(caught.value) == reason


def test_the_timing_runner_refuses_the_trace(laboratory: Laboratory, tmp_path: Path) -> None:
    emulator = locate()
    model = laboratory.program("toy_fp16").model
    flags = [f"--model={model}", f"--result={tmp_path / 'r.json'}", "--kernel-trace=k.json"]
    done = run_command([*emulator.command(emulator.runner), *flags])
    assert done.exit_code == 2
    assert done.stderr == (
        "etprof-runner: --kernel-trace is given, but this runner has no trace: use "
        "etprof-runner-trace, or the runner of a trace build, such as preset host-trace\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_three_vector_lengths_do_the_same_work_in_other_tiles(laboratory: Laboratory) -> None:
    """Issue 14: calls at 128, 256 and 512 bits are those that m, n and the tiles explain."""
    lengths = (512, 256, 128)
    counted = {
        f"{bits}": laboratory.evidence("toy_fp16", "sme2", svl_bits=bits) for bits in lengths
    }
    assert [each.count_level("sme2") for each in counted.values()] == [9, 17, 33]
    stem, last = (
        [use for use in tile_uses(counted) if use.operator.parsed_name.base == base]
        for base in ("Convolution", "Fully Connected")
    )
    for uses in (stem, last):
        assert [use.kernel.calls for use in uses] == [use.expected_calls for use in uses]
        assert len({use.useful for use in uses}) == 1
    assert [(use.tile.rows, use.tile.columns) for use in stem] == [(32, 32), (16, 16), (8, 8)]
    assert {tile_share([use]) for use in stem} == {1.0}
    assert {(use.k, use.k_computed) for use in stem} == {(27, 36)}
    # AND ten outputs fill little of a row of four vectors
    assert [tile_share([use]) for use in last] == [10 / 64, 10 / 32, 10 / 16]
