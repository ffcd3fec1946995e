"""The conditions of a launch: cool-down, start temperature, and the machine's state around it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etprof.measuring.plan import Settings
    from etprof.targets import Target
    from etprof.targets.state import TargetState

_POLL_S: Final = 2.0


def wait_for_start(target: Target, settings: Settings, *, is_first: bool) -> float:
    """Waits out cool-down and start temperature; returns the seconds waited.

    A target without temperature sensors never waits for one. Gives up waiting for a temperature
    after `max_wait_s`; the recorded state then shows how warm it was.
    """
    start = time.monotonic()
    if not is_first and settings.cool_down_s:
        time.sleep(settings.cool_down_s)
    limit = settings.max_start_temperature_c
    while limit is not None and time.monotonic() - start < settings.max_wait_s:
        hottest = hottest_sensor(target.read_state())
        if hottest is None or hottest <= limit:
            break
        time.sleep(_POLL_S)
    return time.monotonic() - start


def hottest_sensor(state: TargetState) -> float | None:
    """Returns the highest temperature in °C, or None without sensors."""
    return max(state.temperatures_c.values(), default=None)
