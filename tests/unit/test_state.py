"""The state of a target, from the files that Linux and Android kernels show."""

from __future__ import annotations

import sys

import pytest

from etprof.targets.state import TargetState, read_local_state, state_from_files

CPU = "/sys/devices/system/cpu"
ZONE = "/sys/class/thermal/thermal_zone"
FILES = {
    f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "1800000",
    f"{CPU}/cpu2/cpufreq/scaling_cur_freq": "3300000",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "schedutil",
    f"{CPU}/cpu2/cpufreq/scaling_governor": "performance",
    f"{ZONE}0/type": "cpu-0-0-usr",
    f"{ZONE}0/temp": "41200",
    f"{ZONE}1/type": "cpu-0-0-usr",
    f"{ZONE}1/temp": "42000",
    f"{ZONE}10/temp": "36500",
    "/proc/loadavg": "0.20 1.18 12.12 1/80 11206",
}


def test_every_part_is_understood() -> None:
    state = state_from_files(FILES, sensors_c={"skin": 33.5}, thermal_status="none")
    assert state == TargetState(
        frequency_khz=(1800000, None, 3300000),
        governor="performance,schedutil",
        temperatures_c={
            "cpu-0-0-usr": 41.2,
            "cpu-0-0-usr 1": 42.0,
            "zone 10": 36.5,
            "skin": 33.5,
        },
        load_average=(0.2, 1.18, 12.12),
        thermal_status="none",
    )


def test_nothing_to_read_is_nothing_claimed() -> None:
    assert state_from_files({}) == TargetState()


@pytest.mark.parametrize("text", ["", "-", "0", "-274000", "9" * 30, "warm", "200000"])
def test_a_sensor_that_is_off_or_lies_is_left_out(text: str) -> None:
    assert state_from_files({f"{ZONE}0/type": "skin", f"{ZONE}0/temp": text}) == TargetState()


@pytest.mark.parametrize("text", ["", "<unknown>", "-1", "1" * 40])
def test_a_frequency_that_is_no_number_is_missing(text: str) -> None:
    state = state_from_files({f"{CPU}/cpu0/cpufreq/scaling_cur_freq": text})
    assert state.frequency_khz == (None,)


def test_a_core_number_that_no_machine_has_costs_no_memory() -> None:
    assert state_from_files({f"{CPU}/cpu9999/cpufreq/scaling_cur_freq": "1"}) == TargetState()


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_this_machine_shows_its_load() -> None:
    load = read_local_state().load_average
    assert load is not None
    assert all(0 <= value < 10_000 for value in load)
