"""Power and display settings of a device: two profiles, what is in force, save and restore."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote

from etprof.base.atomic import write_json
from etprof.base.errors import OutputError, TargetError, UsageError
from etprof.base.files import user_folder
from etprof.base.records import Record, read_record
from etprof.base.text import clean
from etprof.targets.android.adb import own_serial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.targets.android.adb import Adb

_ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")
PROFILES: Final[dict[str, dict[str, str]]] = {
    "boost": {
        "low_power": "0", "stay_on_while_plugged_in": "15", **dict.fromkeys(_ANIMATIONS, "0"),
    },
    "app": {
        "stay_on_while_plugged_in": "1", **dict.fromkeys(_ANIMATIONS, "1"), "low_power": "0",
    },
}  # fmt: skip
"""Global settings of each profile, in the order in which they are written."""
_KEYS: Final = tuple(PROFILES["boost"])
_COMMANDS_BEFORE: Final = {"boost": "svc power stayon true"}
"""Run before the settings are written: on older Androids it writes 7 to stay_on_while_plugged_in."""


class SavedSettings(Record):
    """A device's settings as they were before etprof first changed them."""

    schema_version: Literal[1] = 1
    device: str
    saved_at: str
    profile: str
    """What was prepared last."""
    settings: dict[str, str | None]
    """None: not set on the device."""


@dataclass(frozen=True)
class ProfileDifference:
    """A setting that is not as the profile wants it."""

    setting: str
    expected: str
    actual: str | None


def read_settings(adb: Adb) -> dict[str, str | None]:
    """Returns the profiles' settings as they are; None for one that is not set."""
    script = "\n".join(f"settings get global {key}" for key in _KEYS)
    done = adb.shell(script)
    lines = [line.strip() for line in done.stdout.splitlines()]
    if done.exit_code != 0 or len(lines) != len(_KEYS):
        reason = clean((done.stderr.strip() or done.stdout.strip() or "no answer").splitlines()[-1])
        msg = f"device {adb.serial} does not show its settings ({reason}); is it Android?"
        raise TargetError(msg)
    return {
        key: None if line in {"null", ""} else clean(line)
        for key, line in zip(_KEYS, lines, strict=True)
    }


def profile_in_force(settings: Mapping[str, str | None]) -> str | None:
    """Returns the name of the profile that all settings agree with, or None."""
    return next((name for name in PROFILES if not compare_settings(settings, name)), None)


def compare_settings(settings: Mapping[str, str | None], profile: str) -> list[ProfileDifference]:
    """Returns every setting that is not as `profile` wants it; `1.0` is as good as `1`."""
    return [
        ProfileDifference(key, expected, settings.get(key))
        for key, expected in PROFILES[profile].items()
        if not re.fullmatch(rf"{expected}(\.0+)?", settings.get(key) or "")
    ]


def power_lines(adb: Adb) -> list[str]:
    """Returns what the device's power service says of staying awake and of heat."""
    completed = adb.shell(
        "dumpsys power 2>/dev/null | grep -i 'stay.*awake\\|thermal' | head -n 20"
    )
    return [clean(line.strip()) for line in completed.stdout.splitlines() if line.strip()]


def prepare(adb: Adb, profile: str) -> Path:
    """Saves the device's settings, unless that is done, and applies `profile`.

    Returns where they are saved. Raises TargetError when the device does not keep a setting.
    """
    path = saved_path(adb)
    current = read_settings(adb)
    saved = load_saved(path)
    original = saved.settings if saved else current
    saved_at = saved.saved_at if saved else datetime.now(UTC).isoformat(timespec="seconds")
    record = SavedSettings(device=adb.serial, saved_at=saved_at, profile=profile, settings=original)
    write_json(path, record.model_dump())
    commands = [_COMMANDS_BEFORE[profile]] if profile in _COMMANDS_BEFORE else []
    commands += [f"settings put global {key} {value}" for key, value in PROFILES[profile].items()]
    _change(adb, commands)
    refused = compare_settings(read_settings(adb), profile)
    if refused:
        listed = ", ".join(f"{d.setting} is {d.actual}, not {d.expected}" for d in refused)
        msg = f"device {adb.serial} did not keep profile {profile}: {listed}; see `etprof docs android`"
        raise TargetError(msg)
    return path


def restore(adb: Adb) -> dict[str, str | None]:
    """Puts the saved settings back and forgets them; returns them. Raises UsageError, TargetError."""
    path = saved_path(adb)
    saved = load_saved(path)
    if saved is None:
        msg = f"nothing is saved for device {adb.serial}; `etprof device prepare` saves before it changes"
        raise UsageError(msg)
    settings = {key: saved.settings.get(key) for key in _KEYS}
    _change(adb, [_put_back(key, value) for key, value in settings.items()])
    now = read_settings(adb)
    wrong = [key for key, value in settings.items() if now[key] != value]
    if wrong:
        msg = f"device {adb.serial} did not take back {', '.join(wrong)}; still saved in {path}"
        raise TargetError(msg)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot remove {path}: {error.strerror}; the device is restored, delete it yourself"
        ) from error
    return settings


def _put_back(key: str, value: str | None) -> str:
    if value is None:
        return f"settings delete global {key}"
    return f"settings put global {key} {shlex.quote(value)}"


def _change(adb: Adb, commands: list[str]) -> None:
    done = adb.shell("set -e\n" + "\n".join(f"{command} >/dev/null" for command in commands))
    if done.exit_code != 0:
        reason = clean((done.stderr.strip().splitlines() or [f"exit code {done.exit_code}"])[-1])
        raise TargetError(f"device {adb.serial} refused to change its settings: {reason}")


def load_saved(path: Path) -> SavedSettings | None:
    """Reads the settings saved for a device; None when there are none."""
    if not path.exists():
        return None
    return read_record(
        SavedSettings, path, way_out="delete it if the device's settings are right as they are"
    )


def saved_path(adb: Adb) -> Path:
    """Returns where the settings of this device are saved, however it is attached.

    The device's own serial number names it, so that it can be prepared by cable and restored
    over the network. The folder (XDG_STATE_HOME) is for what must outlive a process.
    """
    folder = user_folder("XDG_STATE_HOME", ".local/state")
    return folder / f"device-{quote(own_serial(adb), safe='')[:150]}.json"
