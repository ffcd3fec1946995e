"""Edges of measuring: plans, launches, waits, searches, and what devices and locks say."""

from __future__ import annotations

import os
import random
import stat
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from etprof.base.errors import OutputError, TargetError
from etprof.base.process import Completed
from etprof.measuring import launching
from etprof.measuring.launching import (
    Launcher,
    check_build,
    check_mode,
    clear,
    hottest_sensor,
    wait_for_start,
)
from etprof.measuring.pipeline import MeasuredRun, _block_metrics, is_precise_enough
from etprof.measuring.plan import (
    Experiment,
    Launch,
    Plan,
    Settings,
    _is_even,
    refuse_other_shapes,
    repetitions,
)
from etprof.measuring.resume import _differences, _target_differences
from etprof.optimize.combinations import choose_layers
from etprof.optimize.search import Search
from etprof.run.generation import Generation
from etprof.run.manifest import LaunchRecord, Manifest
from etprof.run.optimization import Gain, Trial
from etprof.run.program import AppliedRewrite, Program
from etprof.run.runner_result import Cpu, RunnerResult
from etprof.targets import device_lock as locks
from etprof.targets.android.adb import parse_devices
from etprof.targets.android.identity import (
    parse_battery,
    parse_files,
    parse_sensors,
    parse_thermal_status,
)
from etprof.targets.android.session import _read_report
from etprof.targets.device_lock import Holder, MeasuredDevice, device_lock, patience
from etprof.targets.launch_layout import (
    LayoutShift,
    layout_environment,
    level_paths,
    restore_paths,
)
from etprof.targets.leftovers import Process, mark_of
from etprof.targets.registry import identify_device
from etprof.targets.request import RunnerRequest, runner_arguments, taskset_command
from etprof.targets.runner import modes_of, save_output
from etprof.targets.state import TargetState, by_core, is_temperature, read_files, state_from_files
from tests.world.results import result_document
from tests.world.sim_target import SimTarget

if TYPE_CHECKING:
    from etprof.run.manifest import Purpose


def launch(purpose: Purpose, block: int | None = None, **experiment: Any) -> Launch:  # noqa: ANN401
    return Launch(Experiment(**{"name": "e", **experiment}), purpose, block)


def answer(**fields: object) -> RunnerResult:
    return RunnerResult.model_validate(result_document(1000) | fields)


@pytest.mark.parametrize(
    ("purpose", "mode", "is_timed", "expected"),
    [
        ("timing", "timing", True, (7, 4)), ("outputs", "timing", True, (1, 0)),
        # 100 inferences in 6 launches are 17 in each; of an emulator all are in one, not warmed up.
        ("operators", "timing", True, (17, 4)), ("operators", "timing", False, (100, 0)),
        ("operators", "operators", False, (100, 4)),
        ("kernels", "timing", True, (2, 0)), ("kernels", "kernels", True, (7, 4)),
        ("prefill", "timing", True, (2, 0)), ("instructions", "timing", False, (2, 0)),
    ],
)  # fmt: skip
def test_a_launch_repeats_as_often_as_its_purpose_needs(
    purpose: Purpose, mode: str, *, is_timed: bool, expected: tuple[int, int]
) -> None:
    planned = launch(purpose, mode=mode, iterations=7, warmup=4)
    assert repetitions(planned, Settings(), is_timed=is_timed) == expected


def test_inferences_of_a_split_are_tokens_where_tokens_are_generated() -> None:
    generation = Generation(new_tokens=8, prompt_tokens=(1,))
    settings = Settings(operator_iterations=50, operator_launches=3, generation=generation)
    assert repetitions(launch("operators"), settings, is_timed=True)[0] == 3  # 50 / 8 / 3 = 2.08
    assert repetitions(launch("operators"), settings, is_timed=False)[0] == 7


@pytest.mark.parametrize(
    ("rounds", "even"), [(6, [3]), (5, [2, 3]), (1, [0, 1]), (2, [1]), (0, [0])]
)
def test_each_comes_first_in_half_of_the_rounds(rounds: int, even: list[int]) -> None:
    assert [first for first in range(rounds + 1) if _is_even(first, rounds)] == even


def test_operator_rounds_are_spread_among_the_blocks() -> None:
    timing = tuple((launch("timing", block),) for block in range(4))
    splits = tuple((launch("operators", number),) for number in range(2))
    plan = Plan(
        timing[0][0:0], Settings(), (launch("outputs"),), timing, splits, (launch("kernels"),)
    )
    order = [(planned.purpose, planned.block) for planned in plan.launches]
    # After two blocks of four half of the rounds is due, and it comes before the third.
    assert order == [
        ("outputs", None), ("timing", 0), ("timing", 1), ("operators", 0), ("timing", 2),
        ("timing", 3), ("operators", 1), ("kernels", None),
    ]  # fmt: skip


def test_a_launch_is_named_by_its_number_from_1_on() -> None:
    assert launch("timing", 0).text == "e: timing block 1"
    assert launch("prefill").text == "e: count of microkernel calls while the prompt is read"
    assert launch("timing", 0).identity == ("e", "timing", 0)


@pytest.mark.parametrize(
    ("names", "shapes", "is_refused"),
    [("aa", (("1x3",), ("1x4",)), True), ("aa", (("1x3",), ("1x3",)), False),
     ("ab", (("1x3",), ("1x4",)), False), ("aa", ((), ("1x4",)), False)],
)  # fmt: skip
def test_two_programs_of_one_model_get_inputs_of_one_shape(
    names: str, shapes: tuple[tuple[str, ...], tuple[str, ...]], *, is_refused: bool
) -> None:
    programs = [
        Program(name=name, label=name, model=Path(f"{number}.pte"), shapes=shape)
        for number, (name, shape) in enumerate(zip(names, shapes, strict=True))
    ]
    if not is_refused:
        refuse_other_shapes(programs)
        return
    with pytest.raises(
        Exception, match=r"^0\.pte was exported with inputs of 1x3 and 1\.pte with 1x4"
    ):
        refuse_other_shapes(programs)


def test_a_median_is_precise_within_half_the_width_of_its_interval() -> None:
    """From 983.57 to 1016.43: 96.9 % between the ends, 78.1 % one further in, 95 % by weights."""
    blocks = [answer(latency_ns=[ns, ns, ns]) for ns in (980, 990, 1000, 1000, 1010, 1020)]
    assert is_precise_enough([blocks], 0.01643)
    assert not is_precise_enough([blocks], 0.01642)
    assert not is_precise_enough([blocks, blocks[:1]], 9.0)


def test_a_run_knows_its_results_in_order_and_what_was_not_made_good() -> None:
    first, second = answer(method="a"), answer(method="b")
    records = [
        LaunchRecord(experiment="e", purpose="timing", block=block, error=error)
        for block, error in ((0, "lost"), (1, "full"), (0, None))
    ]
    results: dict[Any, RunnerResult] = {
        ("e", "timing", 2): second, ("e", "timing", 0): first, ("e", "outputs", None): first,
        ("f", "timing", 1): second,
    }  # fmt: skip
    measured = MeasuredRun(results, records, [])
    assert [one.method for one in measured.of("e", "timing")] == ["a", "b"]
    assert measured.errors == ["e, timing: full"]


def test_a_block_keeps_medians_of_giving_and_taking_and_rates_of_tokens() -> None:
    times = {"prefill_ns": 2_000_000, "time_to_first_token_ns": 3, "total_ns": 9}
    generation = {
        "prompt_tokens": [1, 2, 3, 4], "tokens": [5, 6, 7], "prefill_method": "p",
        "decode_method": "d", "prefilled_tokens": 4, "first": {**times, "token_latency_ns": [1, 1],
        "time_to_first_token_ns": 8},
        "repetitions": [{**times, "token_latency_ns": [1_000_000, 3_000_000]}],
    }  # fmt: skip
    block = _block_metrics(3, answer(input_ns=[1, 9, 5], output_ns=[4], generation=generation))
    assert (block.block, block.given_ns, block.taken_ns) == (3, 5, 4)
    speeds = block.generation
    assert speeds is not None
    # 4 tokens in 2 ms; 2 tokens after the first in 4 ms.
    assert speeds.prefill_tokens_per_second == [2000.0]
    assert speeds.decode_tokens_per_second == [500.0]
    assert (speeds.token_latency_ns, speeds.first_of_process_ns) == ([1_000_000, 3_000_000], 8)
    bare = _block_metrics(0, answer())
    assert (bare.given_ns, bare.taken_ns, bare.generation) == (None, None, None)


class Clock:
    """A clock that runs only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.now_s += seconds


@pytest.mark.parametrize(
    ("temperatures_c", "settings", "is_first", "waited_s"),
    [
        ([41.0, 40.5, 40.0], {}, True, 4.0),  # until it is no more than the limit
        ([40.0], {}, True, 0.0), ([], {}, True, 0.0),
        ([50.0] * 9, {"max_wait_s": 5.0}, True, 6.0), ([50.0] * 9, {"max_wait_s": 6.0}, True, 6.0),
        ([], {"cool_down_s": 3.0}, False, 3.0), ([], {"cool_down_s": 3.0}, True, 0.0),
        ([41.0, 39.0], {"cool_down_s": 3.0}, False, 5.0),
        ([99.0], {"max_start_temperature_c": None}, False, 0.0),
    ],
)  # fmt: skip
def test_a_launch_waits_until_the_device_is_cool(
    monkeypatch: pytest.MonkeyPatch, temperatures_c: list[float], settings: dict[str, Any],
    is_first: bool, waited_s: float,
) -> None:  # fmt: skip
    clock, target = Clock(), SimTarget()
    target.temperatures_c = list(temperatures_c)
    monkeypatch.setattr(launching, "time", clock)
    asked = Settings(**{"max_start_temperature_c": 40.0, **settings})
    assert wait_for_start(target, asked, is_first=is_first) == waited_s
    assert sum(clock.pauses_s) == waited_s


def test_only_the_first_launch_of_a_run_begins_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock, model = Clock(), tmp_path / "m.pte"
    monkeypatch.setattr(launching, "time", clock)
    model.write_bytes(b"pte")
    program = Program(name="m", label="m", model=model)
    launcher = Launcher(program, SimTarget(), tmp_path / "r", Settings(cool_down_s=2.0))
    waits_s = [launcher.launch(launch("timing", block)).record.waited_s for block in range(3)]
    assert waits_s == [0.0, 2.0, 2.0]


def test_the_hottest_sensor_counts() -> None:
    assert hottest_sensor(TargetState(temperatures_c={"a": 31.0, "b": 44.0, "c": 40.0})) == 44.0
    assert hottest_sensor(TargetState()) is None


@pytest.mark.parametrize(
    ("purpose", "build", "has_clock", "is_refused"),
    [
        ("timing", {"trace": True}, True, True), ("operators", {"trace": True}, False, True),
        ("operators", {"trace": True}, True, False), ("kernels", {"trace": True}, False, False),
        ("timing", {"trace": False}, False, False), ("timing", {}, False, False),
    ],
)  # fmt: skip
def test_what_counts_is_not_timed_but_by_its_own_clock(
    purpose: Purpose, build: dict[str, bool], *, has_clock: bool, is_refused: bool
) -> None:
    document = RunnerResult.model_validate(result_document(1000, **build))
    if is_refused:
        with pytest.raises(TargetError, match="is timed with a trace runner"):
            check_build(launch(purpose), document, has_clock=has_clock)
    else:
        check_build(launch(purpose), document, has_clock=has_clock)


@pytest.mark.parametrize(
    ("asked", "sme", "mode"),
    [
        ("sme2", {"requested": "sme2", "in_force": "sme1"}, "sme1"),
        ("sme2", {"requested": "off", "in_force": "sme2"}, "off"),
        ("auto", {"requested": "off", "in_force": "off"}, None),
        ("off", {"in_force": "off"}, None), ("sme2", None, None),
    ],
)  # fmt: skip
def test_an_answer_in_another_mode_is_refused(
    asked: str, sme: dict[str, str] | None, mode: str | None
) -> None:
    if mode is None:
        check_mode(launch("timing", sme=asked), answer(sme=sme))
        return
    with pytest.raises(
        TargetError, match=f"asked for SME mode {asked}, and the runner ran in {mode}"
    ):
        check_mode(launch("timing", sme=asked), answer(sme=sme))


def test_a_link_to_a_folder_is_removed_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    kept, link = tmp_path / "kept", tmp_path / "link"
    kept.mkdir()
    link.symlink_to(kept)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "a").touch()
    clear([link, tmp_path / "gone", tmp_path / "never"])
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_another_device_is_named_unless_it_came_back_over_the_network() -> None:
    facts = {"serial": "A1", "machine": "arm", "model": "Pixel"}
    run = Manifest.model_validate({"platform": "linux", "model": {"name": "m"}, "target": facts})

    def lines(**now: object) -> list[str]:
        target = SimpleNamespace(platform="linux", describe=lambda: {**facts, **now})
        return list(_target_differences(run, cast("Any", target)))

    assert lines() == []
    assert lines(serial="B2", model="Other") == [
        "target serial: was A1, is B2", "target model: was Pixel, is Other",
    ]  # fmt: skip
    assert lines(serial="10.0.0.2:5555") == []
    assert lines(machine=None) == []
    phone = SimpleNamespace(platform="android", describe=dict)
    assert list(_target_differences(run, cast("Any", phone))) == ["platform: was linux, is android"]
    before, after = Settings(), Settings(seed=3, blocks=99)
    assert list(_differences(before, after, "x: ", {"blocks"})) == ["x: seed was 0, is 3"]


def trial(*names: str, **figures: Any) -> Trial:  # noqa: ANN401 - figures of any kind
    applied = tuple(AppliedRewrite(name=name, operators=1) for name in names)
    return Trial(**{"rewrites": names, "applied": applied, "macs": 9, "passed": True, **figures})


@pytest.mark.parametrize("is_baseline_right", [True, False])
def test_all_together_are_timed_only_against_something_else(*, is_baseline_right: bool) -> None:
    pairs: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def measure(candidate: Trial, reference: Trial) -> tuple[Gain, ...]:
        pairs.append((candidate.rewrites, reference.rewrites))
        verdict = "faster" if len(candidate.rewrites) > len(reference.rewrites) else "slower"
        fields = {"method": "f", "sme": "off", "pairs": 6, "speed_up": 2.0, "run": "r"}
        return (Gain.model_validate({**fields, "verdict": verdict}),)

    def make(names: tuple[str, ...]) -> Trial:
        return trial(*names, passed=is_baseline_right or bool(names))

    _, best = Search(["a", "b"], make, 2.0, lambda: True, measure).run()
    assert best.rewrites == ("a", "b")
    assert all(candidate != reference for candidate, reference in pairs)
    assert ((("a", "b"), ()) in pairs) is is_baseline_right


@pytest.mark.parametrize(("needed", "trials"), [("a", 1), ("abc", 6), ("h", 13), ("ah", 13)])
def test_layers_are_found_by_doubling_and_halving(needed: str, trials: int) -> None:
    tried: list[tuple[str, ...]] = []

    def is_sound(layers: tuple[str, ...]) -> bool:
        tried.append(layers)
        return set(needed) <= set(layers)

    assert choose_layers("abcdefgh", is_sound, lambda: True) == tuple(needed)
    assert len(tried) == trials
    assert tried[:2] == ([("a",)] if needed == "a" else [("a",), ("a", "b")])


@pytest.mark.parametrize(
    ("sizes", "variables"),
    [((16, 4080), "0016,4080"), ((4080, 16), "4080,0016"), (None, "0000,0000")],
)
def test_every_shift_takes_as_many_bytes_of_the_environment(
    sizes: tuple[int, int] | None, variables: str
) -> None:
    shift = None if sizes is None else LayoutShift(*sizes)
    assert layout_environment(shift) == {"ETPROF_LAYOUT": variables}


def test_shifts_are_whole_steps_within_a_page() -> None:
    chooser = random.Random(0)  # noqa: S311 - no secret
    shifts = [LayoutShift.draw(chooser) for _ in range(5000)]
    assert {shift.heap_bytes for shift in shifts} == set(range(16, 4096, 16))
    assert {shift.stack_bytes for shift in shifts} == set(range(16, 4096, 16))


@pytest.mark.parametrize(
    ("size", "length"), [(100, 128), (126, 128), (127, 256), (254, 256), (510, 512), (998, 1000),
                         (999, 999)]
)  # fmt: skip
def test_a_path_has_two_slashes_more_or_none(size: int, length: int) -> None:
    path = "/" + "a" * (size - 1)
    levelled, plain = level_paths([f"--model={path}", "--seed=3", f"--shapes={path}"])
    assert len(levelled[0]) == len("--model=") + length
    assert levelled[1:] == ["--seed=3", f"--shapes={path}"]
    (long_path,) = plain
    assert plain[long_path] == path
    assert restore_paths(f"no {long_path} here, /// nor //", plain) == f"no {path} here, / nor //"


def test_a_runner_is_given_only_what_is_asked() -> None:
    request = RunnerRequest(model=Path("m.pte"), result=Path("r.json"))
    usual = ["--model=m.pte", "--method=forward", "--warmup=0", "--seed=0", "--result=r.json"]
    assert runner_arguments(request) == usual
    steps = replace(request, output_steps=1, sme="off", cpus=(0, 3), shapes=("1x3", "4"))
    assert runner_arguments(steps) == [
        "--model=m.pte", "--shapes=1x3,4", "--method=forward", "--warmup=0", "--seed=0", "--sme=off",
        "--result=r.json",
    ]  # fmt: skip
    many = replace(request, output_steps=2, cold_inputs=True, extra_arguments=("--x",))
    assert runner_arguments(many)[-4:] == [
        "--output-steps=2",
        "--result=r.json",
        "--cold-inputs",
        "--x",
    ]
    assert taskset_command(steps.cpus) == ["taskset", "-c", "0,3"]
    assert taskset_command(()) == []
    assert request.written == (Path("r.json"), Path("r_logcat.txt"), Path("r_runner.txt"))


@pytest.mark.parametrize(
    ("value_c", "can_be"),
    [(0.0, False), (0.001, True), (150.0, True), (150.001, False), (-5.0, False)],
)
def test_a_sensor_can_mean_more_than_0_and_up_to_150(value_c: float, *, can_be: bool) -> None:
    assert is_temperature(value_c) is can_be


def test_files_of_cores_and_zones_are_read_by_their_numbers(tmp_path: Path) -> None:
    path = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    files = {path.format(core): str(core) for core in (1, 1023, 1024)}
    cores = by_core(files, "scaling_cur_freq")
    assert (len(cores), cores[0], cores[1], cores[1023]) == (1024, None, "1", "1023")
    state = state_from_files({**files, "/proc/loadavg": "1.5 2.25 3.0 1/2 3"})
    assert state.load_average == (1.5, 2.25, 3.0)
    for name, text in (("b", "two\nlines"), ("a", " one \n"), ("c", "")):
        (tmp_path / name).write_text(text)
    lines = read_files([f"{tmp_path}/[abc]", f"{tmp_path}/never"])
    assert lines == {f"{tmp_path}/a": "one", f"{tmp_path}/b": "two", f"{tmp_path}/c": ""}
    assert list(lines) == sorted(lines)


CPU = Cpu(architecture="aarch64", model_name="Apple  M4 ", logical_cores=10, features={})


@pytest.mark.parametrize(
    ("platform", "target", "cpu", "device"),
    [
        ("mac", {"system": "Darwin"}, CPU, ("macos", "Apple M4, 10 cores, Darwin", "Apple M4")),
        ("linux", {"machine": "arm", "logical_cores": 4}, None, ("local", "arm, 4 cores", "arm")),
        ("linux", {}, None, ("local", "linux", None)),
        ("android", {"serial": "A1", "manufacturer": "G", "model": "P", "soc_model": "T"}, None,
         ("android", "G P (A1)", "T")),
        ("android", {"serial": "10.0.0.2:5555"}, None, ("android", "Android device", None)),
        ("android", {"serial": "emulator-5554", "model": "P"}, None, ("android", "P", None)),
        ("emulator", {"emulator": "qemu 9", "emulated_cpu": "max"}, CPU,
         ("emulator", "qemu 9 max", None)),
        ("elsewhere", {"machine": "x"}, None, ("local", "x", "x")),
    ],
)  # fmt: skip
def test_a_device_has_one_name_in_the_history(
    platform: str, target: dict[str, object], cpu: Cpu | None, device: tuple[object, ...]
) -> None:
    assert identify_device(platform, target, cpu) == device


@pytest.mark.parametrize(
    ("features", "modes"),
    [({"sme": True, "sme2": True}, ("sme2", "sme1", "off")), ({"sme": True}, ("sme1", "off")),
     ({"sme2": False}, ("off",))],
)  # fmt: skip
def test_the_best_mode_of_a_cpu_comes_first(
    features: dict[str, bool], modes: tuple[str, ...]
) -> None:
    assert modes_of(CPU.model_copy(update={"features": features})) == modes


def test_what_a_phone_says_of_itself_is_read() -> None:
    battery = (
        "Battery:\n  AC powered: true\n  USB powered: false\n  Dock powered: true\n  level: 87\n"
    )
    assert parse_battery(battery + "  temperature: 312\n") == {
        "level_percent": 87, "temperature_c": 31.2, "plugged": "ac,dock",
    }  # fmt: skip
    assert parse_battery("  level: 5\n") == {
        "level_percent": 5,
        "temperature_c": None,
        "plugged": "no",
    }
    assert parse_battery("  AC powered: true\n") is None
    statuses = [parse_thermal_status(f"Thermal Status: {number}") for number in (0, 3, 6, 7)]
    assert statuses == ["none", "severe", "shutdown", None]
    row = "Temperature{{mValue={}, mType={}, mName={}, mStatus=0}}\n"
    rows = ((31.5, 0, "cpu"), (4.2, 6, "vbat"), (33, 3, "skin"), (0.0, 3, "off"), (9, 8, "soc"))
    text = row.format(99, 0, "old") + "Current temperatures from HAL:\n"
    text += "".join(row.format(*figures) for figures in rows)
    text += "Current cooling devices from HAL:\n" + row.format(88, 0, "fan")
    assert parse_sensors(text) == {"cpu": 31.5, "skin": 33.0}
    assert parse_files("/a:b:c\nnoise\n/d: e \n") == {"/a": "b:c", "/d": "e"}


def test_attached_devices_are_listed_with_their_state_and_model() -> None:
    listed = (
        "List of devices attached\n* daemon started\nadb server\nA1 device usb:1 model:Pixel_9 x:y\n"
        "B2\tunauthorized\nC3 no permissions; see\n\n"
    )
    assert [device.text for device in parse_devices(listed)] == [
        "A1 (device, Pixel_9)", "B2 (unauthorized)", "C3 (no permissions)",
    ]  # fmt: skip


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (128, 128), (129, -1), (137, -9), (7, 7)])
def test_a_launch_on_a_phone_ends_by_its_code_or_a_signal(code: int, exit_code: int) -> None:
    digest = "a" * 64
    report = f"{code}\n42\n01-02 03:04:05.678\n{digest} 12 ./m.etdump\n{digest} 7 ./../x\n{digest} 3 ./o/f\n"
    ended = _read_report(report, "out", "err")
    assert (ended.exit_code, ended.process_id, ended.started_at) == (
        exit_code,
        "42",
        "01-02 03:04:05.678",
    )
    assert {name: file.size_bytes for name, file in ended.files.items()} == {
        "m.etdump": 12,
        "o/f": 3,
    }
    assert _read_report(f"{code}\n42\nsoon\n", "", "").started_at == ""


PHONE = MeasuredDevice("a phone/1", "the phone")


@pytest.fixture(name="folder")
def lock_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(locks.FOLDER_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


def test_a_lock_is_everybodys_file_in_a_folder_where_each_removes_their_own(folder: Path) -> None:
    mask = os.umask(0o077)
    try:
        with device_lock(PHONE, lambda *_: None):
            (file,) = folder.iterdir()
            assert file.name == "a_phone_1.lock"
            assert stat.S_IMODE(file.stat().st_mode) == 0o666
            assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
            assert f"(process {os.getpid()} of " in file.read_text()
        assert file.read_text() == ""
    finally:
        os.umask(mask)


def test_a_lock_under_a_second_name_is_refused_with_the_way_out(folder: Path) -> None:
    with device_lock(PHONE, lambda *_: None):
        (file,) = folder.iterdir()
    file.with_name("second").hardlink_to(file)
    with (
        pytest.raises(
            OutputError, match="it is not a file of its own; name another folder with ETPROF_"
        ),
        device_lock(PHONE, lambda *_: None),
    ):
        pass


def test_a_lock_is_signed_with_the_module_and_first_word_and_no_flag(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["/x/etprof/__main__.py", "run", "--token=secret"])
    assert locks._describe_this_process().startswith(f"etprof run (process {os.getpid()} of ")
    monkeypatch.setattr("sys.argv", ["/x/bin/etprof"])
    assert locks._describe_this_process().startswith("etprof (process ")


def test_what_was_ended_is_told_of_its_device_and_does_not_count_as_waiting() -> None:
    said: list[str] = []
    waiting = patience(said.append)
    waiting(PHONE, Holder("left", is_this_process=False, has_been_ended=True))
    for text in ("me", "you", "they"):
        waiting(PHONE, Holder(text, is_this_process=text == "me"))
    assert said == [
        "Ended on the phone: left",
        "Waiting for the phone, in use by you; --no-wait fails instead",
    ]


def test_a_process_is_marked_while_it_lives() -> None:
    assert mark_of(os.getpid()) == mark_of(os.getpid())
    assert str(mark_of(os.getpid())).isdecimal() or sys.platform != "linux"
    assert mark_of(2**22 + 1) is None
    assert Process(7, 7, 0, "a\nb").text.endswith("(process 7)")


@pytest.mark.parametrize(
    ("code", "is_kept"),
    [(0, True), (1, True), (2, False), (3, False), (4, False), (5, True), (7, False)],
)
def test_a_refusal_leaves_no_words_and_all_else_its_last_ones(
    tmp_path: Path, code: int, *, is_kept: bool
) -> None:
    request = RunnerRequest(model=Path("m.pte"), result=tmp_path / "r.json")
    save_output(request, Completed(("x",), code, "first\n", f"{'c' * 999}\n" * 99 + "d" * 2100))
    assert request.words.exists() is is_kept
    if is_kept:
        text = request.words.read_text()
        # 64 KiB and the last line's end; a line that is cut has 2,000 letters with what says so.
        assert (len(text), len(text.splitlines()[-1]), "first" in text) == (65_537, 2000, False)
