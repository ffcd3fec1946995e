"""What real phones print, as far as it is documented and public; no phone was at hand.

The texts follow Android's own sources (BatteryService and ThermalManagerService dumps).
"""

from __future__ import annotations

import pytest

from etprof.targets.android.identity import (
    parse_battery,
    parse_files,
    parse_sensors,
    parse_thermal_status,
)
from etprof.targets.android.profiles import compare_settings, profile_in_force
from etprof.targets.android.session import read_log

BATTERY = """\
Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Dock powered: false
  Max charging current: 500000
  status: 2
  health: 2
  present: true
  level: 81
  scale: 100
  voltage: 4211
  temperature: 293
  technology: Li-ion
"""
THERMAL = """\
IsStatusOverride: false
ThermalEventListeners:
\tcallbacks: 3
Thermal Status: 1
Cached temperatures:
\tTemperature{mValue=99.5, mType=3, mName=OLD, mStatus=0}
HAL Ready: true
HAL connection:
\tThermalHAL AIDL 1  connected: yes
Current temperatures from HAL:
\tTemperature{mValue=38.7, mType=0, mName=CPU0, mStatus=0}
\tTemperature{mValue=33.059002, mType=3, mName=VIRTUAL-SKIN, mStatus=0}
\tTemperature{mValue=97.0, mType=8, mName=soc, mStatus=0}
\tTemperature{mValue=NaN, mType=4, mName=USB, mStatus=0}
\tTemperature{mValue=-3.4028235E38, mType=1, mName=GPU, mStatus=0}
Current cooling devices from HAL:
\tCoolingDevice{mValue=0, mType=2, mName=thermal-cpufreq-0}
"""


def test_battery_is_read() -> None:
    assert parse_battery(BATTERY) == {
        "level_percent": 81,
        "temperature_c": 29.3,
        "plugged": "usb",
    }


def test_a_device_without_battery_has_none() -> None:
    assert parse_battery("Can't find service: battery") is None


def test_heat_is_read_from_the_current_values_only() -> None:
    assert parse_thermal_status(THERMAL) == "light"
    assert parse_sensors(THERMAL) == {"CPU0": 38.7, "VIRTUAL-SKIN": 33.059002}


@pytest.mark.parametrize(
    "text", ["", "Thermal Status: 9", "Thermal Status: -1", "x Thermal Status: 1"]
)
def test_an_unknown_status_is_none(text: str) -> None:
    assert parse_thermal_status(text) is None


def test_lines_that_are_no_files_are_left_out() -> None:
    text = "/sys/a/temp:41200\ngrep: /sys/b: Permission denied\n\n/sys/c:with:colons\x07\n"
    assert parse_files(text) == {
        "/sys/a/temp": "41200",
        "/sys/c": "with:colons\\x07",
    }


def test_settings_as_floats_count_as_the_same() -> None:
    settings: dict[str, str | None] = {
        "low_power": "0",
        "stay_on_while_plugged_in": "1",
        "window_animation_scale": "1.0",
        "transition_animation_scale": "1.00",
        "animator_duration_scale": "1",
    }
    assert profile_in_force(settings) == "app"
    settings["animator_duration_scale"] = "10"
    assert [d.setting for d in compare_settings(settings, "app")] == ["animator_duration_scale"]


def test_a_process_id_that_is_none_asks_the_log_nothing() -> None:
    from etprof.targets.android.adb import Adb

    assert read_log(Adb("X"), "1; reboot", "") == []
