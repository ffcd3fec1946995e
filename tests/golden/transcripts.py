"""What commands print about known runs: their lines, exit codes, and the files they write."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from etprof._version import __version__
from etprof.views.optimize import optimize_page
from tests.golden.json_text import describe_json
from tests.golden.runs import described, drawings, page_text, rounded, states
from tests.golden.runs import measure as measure_all_purposes
from tests.golden.two_programs import two_programs, write_two_programs
from tests.known_etdumps import foreign_etdump
from tests.known_runs import OFF_OPS, Experiment, Op, Run, on_off_run, write_run
from tests.manifests import edit_manifest
from tests.unit.test_optimize_page import GAIN, search
from tests.upstream_files import minibench_json, runner_log, xctest_log
from tests.world.host import etprof, simulated_host
from tests.world.results import GeneratingTarget
from tests.world.sim_target import SimTarget
from tests.world.spec import Failure, Noise, RunSpec

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?)?")
_STAMP: Final = re.compile(r"\d{8}T\d{6}Z")
_RUN_ID: Final = re.compile(r"\b[0-9a-f]{32}\b")
_TOOK: Final = re.compile(r"(?<= on host: )\d+\.\d s|(?<=duration_s )\d[\d.e-]*")
_SCRUBBED: Final = ((_MOMENT, "MOMENT"), (_STAMP, "STAMP"), (_RUN_ID, "RUN_ID"), (_TOOK, "TIME"))
_HELD_LINES: Final = 40
"""Of a trace's events: later executions are like the first ones."""


@dataclass(frozen=True)
class Transcript:
    """Commands that are given one after the other in a folder that is prepared for them."""

    prepare: Callable[[Path], None]
    commands: Sequence[str]
    files: Sequence[str] = ()
    """What the commands wrote and is held too; patterns of names."""
    columns: int = 100
    target: Callable[[], SimTarget] = SimTarget
    """The machine that the commands find."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set; FOLDER in a value is the folder."""


def transcribe(folder: Path, transcript: Transcript) -> str:
    """Gives the commands; returns what was typed, printed and written.

    Args:
        folder: an empty one; its name stands in the text as FOLDER.
        transcript: what is typed, and what it needs.
    """
    transcript.prepare(folder)
    target = transcript.target()
    parts = []
    with pytest.MonkeyPatch.context() as patch, simulated_host(lambda **_: target):
        for name, value in transcript.environment.items():
            patch.setenv(name, value.replace("FOLDER", str(folder)))
        for words in transcript.commands:
            given = shlex.split(words.replace("FOLDER", str(folder)))
            done = etprof(folder, *given, columns=transcript.columns)
            parts.append(f"$ etprof {words} → {done.exit_code}\n{done.stdout}")
            if done.stderr:
                parts.append(f"on standard error:\n{done.stderr}")
    paths = [path for pattern in transcript.files for path in sorted(folder.glob(pattern))]
    parts += [f"# {path.relative_to(folder)}\n{_file_text(path)}" for path in paths]
    return scrubbed("\n".join(parts), folder)


def scrubbed(text: str, folder: Path) -> str:
    """Takes out of a text what is another one at each moment and on each machine."""
    text = text.replace(str(folder), "FOLDER").replace(f"etprof {__version__}", "etprof")
    for pattern, word in _SCRUBBED:
        text = pattern.sub(word, text)
    lines = (line.rstrip() for line in rounded(text).splitlines())
    return "\n".join(lines) + "\n"


def _file_text(path: Path) -> str:
    """A file as lines that can be read: pages without tags, JSON a record a line."""
    text = path.read_text("utf-8")
    if path.suffix == ".html":
        return f"{page_text(text)}\n{drawings(text)}"
    if path.suffix == ".md":
        return text.partition("\n## Provenance")[0]
    if path.suffix != ".json":
        return text
    document = json.loads(text)
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if events is not None:
        return "\n".join([f"{len(events)} events", *map(json.dumps, events[:_HELD_LINES])])
    return "\n".join(describe_json(document, (".dependencies.",)))


def _write_described(folder: Path) -> None:
    """SME2 on and off, with all that an export says of the program."""
    write_run(folder / "run", replace(on_off_run(), delegation=described(), launches=states()))


def _write_peaks(folder: Path) -> None:
    """The same, beside what a device of its kind can do at most."""
    _write_described(folder)
    product = {"program": "Product512_fp16", "precision": "fp16", "threads": 1, "launches": 6}
    stream = {"sme": "off", "threads": 1, "launches": 6}
    peaks = [
        {**product, "sme": "off", "low": 9.0, "high": 10.0, "least_ns": 3e6},
        {**product, "sme": "sme2", "low": 90.0, "high": 100.0, "least_ns": 3e5},
        {**stream, "program": "Stream8K", "moved_bytes": 16_384, "low": 4.0, "high": 4.5,
         "least_ns": 3600.0},
        {**stream, "program": "Stream64M", "moved_bytes": 134_217_728, "low": 1.0, "high": 1.1,
         "least_ns": 1.2e8},
        {**stream, "sme": "sme2", "program": "Stream64M", "moved_bytes": 134_217_728, "low": 0.9,
         "high": 1.2, "least_ns": 1.1e8},
    ]  # fmt: skip
    document = {"schema_version": 1, "device": "Android device", "measured_at": "x", "peaks": peaks}
    (folder / "peaks.json").write_text(json.dumps(document))


def _write_rivals(folder: Path) -> None:
    """Three precisions of a model on one device, MobileNet beside them, and one without times."""
    _write_described(folder)
    faster = Experiment("android_off", OFF_OPS, latency_us=[700 + i % 3 for i in range(10)])
    lean = Experiment("android_off", OFF_OPS[:3], latency_us=[460 + i % 2 for i in range(10)])
    write_run(folder / "int8", Run([faster], precision="int8"))
    write_run(folder / "mobilenet", Run([lean], model="mobilenet_v2"))
    write_run(folder / "emulated", Run([faster], platform="emulator", meaningful=False))


def _write_separate(folder: Path) -> None:
    """Runs of a program in turns with those of one that is a tenth faster; a slow, an unlike one."""
    for number in range(3):
        for name, base_us in (("old", 900), ("new", 810)):
            latency_us = [base_us + 2 * number + i % 3 for i in range(10)]
            moment = f"2026-11-21T05:{10 * number + (name == 'new'):02}:00+00:00"
            run = Run([Experiment("timed", OFF_OPS, latency_us=latency_us)], created_at=moment)
            write_run(folder / f"{name}{number}", run)
    few = Run([Experiment("timed", OFF_OPS, latency_us=[1200, 1300, 1250])])
    write_run(folder / "few", few)
    unlike = Run([Experiment("timed", OFF_OPS, threads=4)], inputs=("c" * 64,), build_type="Debug")
    write_run(folder / "unlike", unlike)


def _write_noisy(folder: Path) -> None:
    """Ten launches that drift, with outliers and interruptions, of few executions."""
    ops = (Op("Convolution (NHWC, F32) IGEMM #1", 80), Op("native_call_add.out", 20, 1))
    slow = (Op("Convolution (NHWC, F32) IGEMM #1", 800), Op("native_call_add.out", 20, 1))
    drifting = Experiment(
        "drifting", ops, latency_us=[100 * 1.01**i for i in range(10)],
        noise=(0.8, 1.0, 1.9), further_launches=(slow,), last_ops=slow,
    )  # fmt: skip
    write_run(folder / "run", Run([drifting], platform="linux", build_type="Debug"))


def _write_program(folder: Path) -> None:
    (folder / "m.pte").write_bytes(b"program")


def _write_config(folder: Path) -> None:
    """Three modes in six blocks, of which one will fail."""
    _write_program(folder)
    sides = [
        {"name": sme, "sme": sme, "threads": [1, 2], "warmup": 1} for sme in ("off", "sme1", "sme2")
    ]
    measurement = {"blocks": 6, "min_seconds": 0.01, "etdump_runs": 3, "allow_inaccurate": True}
    _write_json_config(folder, sides, measurement=measurement)


def _write_hopeless(folder: Path) -> None:
    """Runs with one timed launch and with three, and one of operators."""
    _write_program(folder)
    for blocks, name in ((1, "one"), (3, "three")):
        sides = [{"name": "off", "sme": "off", "mode": "timing"}]
        document = {
            "model": "m.pte", "output_root": name, "target": {"kind": "linux"},
            "experiments": sides, "measurement": {"blocks": blocks, "operator_launches": 1},
        }  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(document))


def _write_matrix(folder: Path) -> None:
    """Two programs on this host, with a mode that it has not and a combination that is left out."""
    for name in ("m", "n"):
        (folder / f"{name}.pte").write_bytes(name.encode())
    document = {
        "name": "both", "models": [{"model": "m.pte"}, {"model": "n.pte"}],
        "sme": ["off", "sme2"], "threads": [1, 2],
        "precisions": ["fp32", "int8"], "exclude": [{"precision": "int8"}],
        "measurement": {"blocks": 6, "min_seconds": 0.01, "operator_launches": 2,
                        "operator_iterations": 3},
    }  # fmt: skip
    (folder / "matrix.json").write_text(json.dumps(document))


def _write_generation(folder: Path) -> None:
    """Four tokens after a prompt of three, with and without SME2."""
    _write_program(folder)
    sides = [{"name": sme, "sme": sme, "warmup": 1, "runs": 2} for sme in ("off", "sme2")]
    _write_json_config(
        folder, sides, generation={"new_tokens": 4, "prompt_tokens": [7, 8, 9]},
        measurement={"blocks": 6, "etdump_runs": 3, "allow_inaccurate": True},
    )  # fmt: skip


def _write_json_config(folder: Path, sides: list[dict[str, Any]], **more: object) -> None:
    document = {
        "model": "m.pte", "output_root": "run", "target": {"kind": "linux"}, "experiments": sides,
        **more,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(document))


def _write_damaged(folder: Path) -> None:
    """Runs that lack a file, hold a changed one, say what cannot be, or are none."""
    for name in _DAMAGED:
        write_run(folder / name, on_off_run())
    next((folder / "lacking").rglob("*.etdump")).unlink()
    etdump = next((folder / "changed").rglob("*.etdump"))
    etdump.write_bytes(etdump.read_bytes()[:-40])
    edit_manifest(folder / "early", lambda document: document.update(schema_version=99))
    (folder / "stray" / "metrics.json").write_text("{")
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("no run")


def _attach_phone(folder: Path) -> None:
    """A phone whose adb runs what it is asked in a shell here, with Android's own commands."""
    (folder / "settings").mkdir()
    (folder / "settings/low_power").write_text("1")
    (folder / "settings/animator_duration_scale").write_text("1.0")
    (folder / "store/etprof-store").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin/adb").write_text(_ADB)
    (folder / "bin/adb").chmod(0o755)


def _write_foreign(folder: Path) -> None:
    """What ExecuTorch's own programs leave."""
    (folder / "model.etdump").write_bytes(foreign_etdump(4))
    (folder / "runner.log").write_text(runner_log((1.30, 0.13, 0.126, 0.127, 0.128), threads=2))
    (folder / "bench.json").write_text(minibench_json())
    (folder / "ios.log").write_text(xctest_log([0.012, 0.0125, 0.0118]))


def _write_searches(folder: Path) -> None:
    """The pages of two searches: one that measured, one that ranked."""
    pages = {"timed": optimize_page(search(gains=(GAIN,)), [search("int8")])}
    pages["ranked"] = optimize_page(search("int8"), [])
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, "utf-8")


_ADB: Final = """#!/bin/sh
settings() {
    case "$1" in
        get) command cat "$SETTINGS/$3" 2>/dev/null || printf null; echo ;;
        put) printf %s "$4" >"$SETTINGS/$3" ;;
        delete) rm -f "$SETTINGS/$3" ;;
    esac
}
svc() { printf 7 >"$SETTINGS/stay_on_while_plugged_in"; }
getprop() { case "$1" in ro.serialno) echo R5CT90ABCDE ;; ro.product.model) echo SM-G991B ;; *) echo ;; esac; }
uname() { echo 5.4.61; }
cat() { case "$1" in /sys/*) echo 0-7 ;; *) command cat "$@" ;; esac; }
du() { printf '12\\t.\\n'; }
grep() {
    case "$1" in
        -Hsm)
            for core in 0 7; do
                place=/sys/devices/system/cpu/cpu$core/cpufreq
                echo "$place/cpuinfo_max_freq:2${core}00000"
                echo "$place/scaling_max_freq:2${core}00000"
                echo "$place/scaling_min_freq:400000"
                echo "$place/scaling_cur_freq:1${core}00000"
                echo "$place/scaling_governor:schedutil"
            done
            echo "/proc/loadavg:0.50 0.40 0.30 1/900 1" ;;
        *) command grep "$@" ;;
    esac
}
dumpsys() {
    case "$1" in
        battery) printf 'Battery state:\\n  USB powered: true\\n  level: 87\\n  temperature: 312\\n' ;;
        power) printf '  mStayOn=true stay awake\\n  other line\\n' ;;
        thermalservice)
            echo "Thermal Status: 2"
            echo "Current temperatures from HAL:"
            echo "Temperature{mValue=41.5, mType=0, mName=CPU0, mStatus=0}"
            echo "Temperature{mValue=3.9, mType=6, mName=volts, mStatus=0}"
            echo "Current cooling devices from HAL:" ;;
    esac
}
case "$*" in
    devices*)
        echo "List of devices attached"
        echo "R5CT90ABCDE            device usb:1-4 product:o1 model:SM_G991B device:o1s"
        echo "192.168.1.20:5555      offline transport_id:4" ;;
    *get-state) echo device ;;
    connect*) echo "failed to connect to $2" ;;
    *shell*) eval "$4" ;;
    *) echo "error: not understood: $*" >&2; exit 1 ;;
esac
"""
_PHONE: Final = (
    "restore", "verify", "prepare", "prepare --profile boost --json", "verify", "verify --profile app --full",
    "prepare --profile app --json", "verify --json", "restore", "verify --profile boost --full",
    "clean --remote-folder FOLDER/store --json",
)  # fmt: skip
_DAMAGED: Final = ("whole", "lacking", "changed", "early", "stray")
TRANSCRIPTS: Final[Mapping[str, Transcript]] = {
    "described": Transcript(
        _write_peaks,
        (
            "analyze run",
            "analyze run --full --top 3",
            "compare run:android_off run:android_sme2",
            "compare run:android_sme2 run:android_off --full --top 2 --margin 0.5",
            "validate run --full",
            "report run --peaks peaks.json --format md,html,chrome,folded,hud,model-explorer",
        ),
        ("run/report.html", "run/*trace.json", "run/*.folded", "run/*hud*", "run/*explorer*"),
    ),
    "narrow": Transcript(
        _write_described, ("analyze run", "analyze run --full --top 4"), columns=60
    ),
    "measured": Transcript(
        measure_all_purposes,
        (
            "report run --full",
            "analyze run --full",
            "compare run:off_t1 run:sme2_t2 --allow threads",
            "validate run",
        ),
        columns=140,
    ),
    "json": Transcript(_write_described, ("analyze run --quiet",), ("run/analysis_summary.json",)),
    "rivals": Transcript(
        _write_rivals,
        (
            "report run int8 --out both --format md",
            "report run --reference mobilenet --format md --out one",
            "report run --reference int8",
            "report emulated int8 --out mixed --format md",
        ),
        ("mixed/report.md",),
    ),
    "separate": Transcript(
        _write_separate,
        (
            "compare old0 new0",
            "compare old0 old1 old2 --against new0 new1 new2",
            "compare old0 old1 --against new1 new2 --full --top 1",
            "compare old0 few --full --top 1",
            "compare old0 unlike",
            "compare old0 unlike --against new0 new1",
            "compare old0 old0 --against new0 new1",
            "compare old0 unlike --allow threads --allow inputs --allow runner",
        ),
    ),
    "peaks": Transcript(
        _write_peaks,
        ("report run --peaks peaks.json --format csv", "report run --peaks absent.json"),
        (
            "run/report_intensity.csv",
            "run/report_work.csv",
            "run/report_findings.csv",
            "run/report.html",
        ),
    ),
    "noisy": Transcript(
        _write_noisy,
        ("analyze run", "report run --full --format csv", "validate run"),
        ("run/report_latencies.csv", "run/report_launches.csv", "run/report_findings.csv"),
    ),
    "run": Transcript(
        _write_config,
        (
            "config check config.json",
            "run config.json --dry-run",
            "run config.json",
            "run config.json --resume",
            "validate run --full",
            "analyze run",
        ),
        target=lambda: SimTarget(
            RunSpec(noise=Noise(call=0.02, block=0.003), failure=Failure(sme="sme1"), seed=3)
        ),
    ),
    "hopeless": Transcript(
        _write_hopeless,
        (
            "run one.json",
            "run three.json",
            "run three.json --resume --keep-going",
            "validate three --full",
            "analyze three",
        ),
        target=lambda: SimTarget(RunSpec(failure=Failure(launches=frozenset({1, 3, 5})))),
    ),
    "calibration": Transcript(
        _write_program,
        (
            "calibrate m.pte --threads 1 --blocks 10 --pairs 4 --min-seconds 0.01 --out run",
            "calibrate m.pte --threads 1 --blocks 6 --pairs 6 --runs 3 --out again --store h.sqlite",
            "calibrate m.pte --threads 1 --blocks 3 --pairs 3 --out few --full",
            "calibrate m.pte --pairs 1",
            "calibrate",
            "history noise --store h.sqlite --json",
        ),
        target=lambda: SimTarget(RunSpec(noise=Noise(run=0.01, block=0.01, call=0.02), seed=5)),
    ),
    "matrix": Transcript(
        _write_matrix,
        (
            "bench matrix.json --dry-run",
            "bench matrix.json --store h.sqlite --out out",
            "bench matrix.json --store h.sqlite --out out --resume --full",
            "history list --store h.sqlite",
            "bench",
            "bench matrix.json --scheduler absent:1 --no-wait --dry-run --json",
        ),
        ("out/summary.md", "out/summary.json"),
        target=lambda: SimTarget(RunSpec(noise=Noise(block=0.002), seed=7)),
    ),
    "programs": Transcript(
        write_two_programs,
        (
            "run config.json",
            "compare run:off_first run:off_split --full --top 20",
            "report run --full --format csv",
        ),
        ("run/report_operator_changes.csv", "run/report_waterfall.csv", "run/report_modules.csv"),
        columns=140,
        target=lambda: SimTarget(two_programs()),
    ),
    "generation": Transcript(
        _write_generation,
        ("run config.json", "analyze run", "report run --full --format md,hud"),
        ("run/report.md", "run/*hud*"),
        target=GeneratingTarget,
    ),
    "damaged": Transcript(
        _write_damaged,
        (
            *(f"validate {name}" for name in (*_DAMAGED, "empty", "notes.txt", "absent")),
            "analyze changed",
            "report lacking --format md",
            "compare whole absent",
            "report empty",
        ),
    ),
    "imports": Transcript(
        _write_foreign,
        (
            "import model.etdump runner.log --sme off --platform linux --out both",
            "import bench.json --inferences 50 --out android",
            "import ios.log --out ios",
            "import model.etdump --clock-hz 250e6 --out cycles --json",
            "import runner.log --threads 3 --out log",
            "import model.etdump --time-scale cycles --out never",
            "analyze both",
            "analyze android",
            "analyze model.etdump",
            "validate cycles --full",
        ),
    ),
    "phone": Transcript(
        _attach_phone,
        (
            "device list",
            "device describe",
            "device describe --serial R5CT90ABCDE --full",
            *(f"device {words} --serial R5CT90ABCDE" for words in _PHONE),
            "device verify --serial absent",
            "device list --connect 192.168.1.9",
        ),
        environment={
            "PATH": f"FOLDER/bin{os.pathsep}{os.environ['PATH']}",
            "SETTINGS": "FOLDER/settings",
            "XDG_STATE_HOME": "FOLDER/state",
            "ANDROID_SERIAL": "",
        },
    ),
    "searches": Transcript(_write_searches, (), ("*.html",)),
}


def transcript_file(name: str) -> str:
    """The approved file of a transcript."""
    return f"{name}_transcript.txt"
