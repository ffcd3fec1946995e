"""Reads a run directory as rows of the history, one per experiment, failed ones included."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import ValidationError

from etprof.analysis.generation import block_values
from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.operators import class_totals_ns
from etprof.base.errors import EtprofError, InputFileError
from etprof.base.files import read_input
from etprof.base.json_input import MOST_JSON_BYTES, parse_json, read_json
from etprof.base.records import first_problem
from etprof.base.text import RAW_NAMES, clean, clean_data, raw_names
from etprof.history.metric_names import METRICS
from etprof.history.schema import FAILED, OK, full_hash, make_run, short_hash
from etprof.run.directory import METRICS as METRICS_FILE
from etprof.run.directory import find_etdumps, safe_name
from etprof.run.load import Run as LoadedRun
from etprof.run.load import load_measured
from etprof.run.manifest import MANIFEST, Experiment
from etprof.statistics.order_statistics import median_interval
from etprof.statistics.summary import trimmed_mean
from etprof.targets.registry import find_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from etprof.history.schema import Run
    from etprof.run.directory import BlockMetrics, ExperimentMetrics
    from etprof.run.manifest import Manifest
    from etprof.run.runner_result import Cpu

_PASSING_SERIAL: Final = re.compile(r".*:\d+|emulator-\d+")
"""Serials that say how a device is connected now, not which it is."""
_TRIM: Final = 0.1
"""Cut from each end for the trimmed mean: what is left is the middle 80 %."""
_KEPT_IN_RAW: Final = re.compile(r".*(_b\d+_result\.json|\.log|\.csv|\.html|\.md)")
"""Files whose content the store has anyway, or that can be made again."""


class _Source:
    """What the files of one run directory say."""

    def __init__(self, run: Path, device: str | None) -> None:
        self.run = run
        manifest, self.metrics, self.is_timed = load_measured(run)
        if manifest is None:
            msg = (
                f"{run} is not a run directory: no manifest.json; `etprof profile MODEL` makes one"
            )
            raise InputFileError(msg)
        self.manifest: Manifest = manifest
        content = read_input(run / MANIFEST, most_bytes=MOST_JSON_BYTES, way_out="measure again")
        self.manifest_sha256 = hashlib.sha256(content).hexdigest()
        self.document: dict[str, Any] = parse_json(content)
        self.raw = _read_raw(run) if self.metrics else {}
        found = identify_device(manifest.platform, manifest.target, manifest.cpu)
        self.device_kind, name, self.soc = found
        self.device = device or name
        self.categories, self.split_error = _read_categories(run)

    @property
    def measured_at(self) -> datetime:
        """When the run was started."""
        try:
            moment = datetime.fromisoformat(self.manifest.created_at or "")
        except ValueError:
            msg = f"{self.run}/manifest.json is damaged: created_at: not a time; measure again"
            raise InputFileError(msg) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    @property
    def experiments(self) -> Iterator[Experiment]:
        """Experiments that are timed, planned ones first."""
        planned = {experiment.name for experiment in self.manifest.experiments}
        yield from (e for e in self.manifest.experiments if e.mode == "timing")
        for name, metrics in (self.metrics.experiments if self.metrics else {}).items():
            if name not in planned:
                yield Experiment(name=name, sme=metrics.sme, threads=metrics.threads)

    def measured(self, experiment: str) -> ExperimentMetrics | None:
        """The experiment's metrics; None when no block of it was finished, nor any was planned."""
        found = self.metrics.experiments.get(experiment) if self.metrics else None
        return found if found and (found.blocks or not self.is_timed) else None


def read_run_directory(run: Path, *, device: str | None = None) -> list[Run]:
    """Returns the run directory's experiments; `device` is the name its owner gives the device.

    Raises InputFileError for anything else than a run directory, and for damaged files.
    """
    if not run.is_dir():
        msg = f"{run} is not a run directory; `etprof profile MODEL` makes one"
        raise InputFileError(msg)
    source = _Source(run, device)
    try:
        found = [_read_experiment(source, experiment) for experiment in source.experiments]
    except ValidationError as error:
        msg = f"{run} says what no history takes: {first_problem(error)}; measure again"
        raise InputFileError(msg) from None
    if not found:
        msg = f"{run} has no timed experiment; there is nothing for a history"
        raise InputFileError(msg)
    return found


def _read_experiment(source: _Source, experiment: Experiment) -> Run:
    manifest = source.manifest
    measured = source.measured(experiment.name)
    build = manifest.runner.build if manifest.runner else {}
    version = build.get("executorch_version") or manifest.pins.get("executorch")
    git = manifest.git
    run = make_run(
        {
            "key": _key(source, experiment),
            "run_name": source.run.resolve().name,
            "run_path": str(source.run.resolve()),
            "manifest_sha256": source.manifest_sha256,
            "manifest_run_id": manifest.run_id,
            "experiment": experiment.name,
            "measured_at": source.measured_at,
            "status": OK if measured else FAILED,
            "failure": _failure(source, experiment, measured),
            "model": manifest.model.name,
            **manifest.model.model_dump(include={"precision", "backend", "method"}),
            "device": source.device,
            "device_kind": source.device_kind,
            "soc": source.soc,
            "sme_mode": measured.sme if measured else _sme_of_failed(source, experiment),
            "threads": measured.threads if measured else experiment.threads,
            "variant": _variant(source, experiment),
            "revision": _revision(source),
            **{f"git_{name}": fact for name, fact in (git.model_dump() if git else {}).items()},
            "executorch_version": str(version) if version else None,
            "pins": manifest.pins,
            "artefacts": _artefacts(source, experiment),
            "representative": source.is_timed,
            "metrics": _read_metrics(measured) if measured else (),
            "categories": source.categories.get(experiment.name, {}),
            "raw": source.raw.get(experiment.name) if measured else None,
        }
    )
    _keep_raw_names(source, experiment, run)
    return run


def _keep_raw_names(source: _Source, experiment: Experiment, run: Run) -> None:
    """Keeps the bytes of changed names beside the raw samples; a failed run has no such place."""
    named = source.manifest.model_dump(include={"model", "platform", "git", "cpu", "target"})
    changed = raw_names(
        named, experiment.model_dump(mode="json"), source.manifest.pins, run.facts()
    )
    if run.raw_row is not None and changed:
        run.raw_row.document = {**run.raw_row.document, RAW_NAMES: changed}


def identify_device(
    platform: str, target: Mapping[str, object], cpu: Cpu | None
) -> tuple[str, str, str | None]:
    """Returns the kind of a device, a name that brings its runs together, and its SoC.

    A phone is its make, model and serial. A computer is its CPU, cores and system, which two
    computers may share: runs of unlike computers are told apart by their owner's names only.
    """
    found = find_kind(platform)
    kind = found.history_name if found else "local"
    if kind == "android":
        serial = str(target.get("serial") or "")
        known = _join(target, "manufacturer", "model") or "Android device"
        is_lasting = serial and not _PASSING_SERIAL.fullmatch(serial)
        soc = _join(target, "soc_manufacturer", "soc_model")
        return kind, f"{known} ({serial})" if is_lasting else known, soc
    if kind == "emulator":
        return kind, _join(target, "emulator", "emulated_cpu") or "emulator", None
    # The maker of a CPU may pad its name with spaces.
    model = " ".join((cpu.model_name or cpu.architecture).split()) if cpu else None
    model = model or _join(target, "machine")
    cores = cpu.logical_cores if cpu else target.get("logical_cores")
    facts = (model, f"{cores} cores" if cores else None, _join(target, "system"))
    return kind, ", ".join(fact for fact in facts if fact) or platform, model


def _join(target: Mapping[str, object], *keys: str) -> str | None:
    return " ".join(str(target[key]) for key in keys if target.get(key)) or None


def _key(source: _Source, experiment: Experiment) -> str:
    """Hashes what makes this run: which one, which launches when, and all they measured.

    The rest of the manifest may change without another run: a resume that finds all launches done
    writes it anew, with another command, load and time.
    """
    manifest, raw = source.manifest, source.raw.get(experiment.name)
    if manifest.run_id is None:
        return _key_without_run_id(source, experiment.name, raw)
    launches = [
        (launch.started_at, launch.purpose, launch.block, launch.error)
        for launch in manifest.launches
        if launch.experiment == experiment.name
    ]
    return full_hash(manifest.run_id, experiment.name, launches, raw)


def _key_without_run_id(source: _Source, name: str, raw: object) -> str:
    """The key that stores have for a run of the first schema, whatever our records become."""
    document, metrics = clean_data(source.document), source.measured(name)
    found = (i for i, e in enumerate(document.get("experiments", ())) if e.get("name") == name)
    number = next(found, None)
    # Texts that are used, not shown, were hashed as they came.
    shown, given = ({}, {}) if number is None else (
        document["experiments"][number], source.document["experiments"][number]
    )  # fmt: skip
    planned = {
        "name": name,
        "sme": shown.get("sme", metrics.sme if metrics else None),
        "threads": shown.get("threads", metrics.threads if metrics else None),
        "group": shown.get("group", ""),
        "mode": shown.get("mode", "timing"),
        "cpus": given.get("cpus", ()),
        "runner": given.get("runner"),
        "launcher": given.get("launcher", ()),
        "extra_arguments": given.get("extra_arguments", ()),
        "iterations": given.get("iterations"),
        "warmup": given.get("warmup"),
    }
    launches = [
        (each["started_at"], each["purpose"], each.get("block"), each.get("error"))
        for each in document.get("launches", ())
        if each["experiment"] == name
    ]
    manifest, began = source.manifest, launches or document.get("created_at")
    return full_hash(
        manifest.model.name, manifest.model.sha256, manifest.platform, planned, began, raw
    )


def _failure(
    source: _Source, experiment: Experiment, measured: ExperimentMetrics | None
) -> str | None:
    """Says what failed and was not made good by a later try; None when nothing did."""
    launches = [r for r in source.manifest.launches if r.experiment == experiment.name]
    done = {(r.purpose, r.block) for r in launches if r.error is None}
    errors = [r for r in launches if r.error is not None and (r.purpose, r.block) not in done]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return f"{errors[0].purpose}: {errors[0].error}{more}"
    if measured is None:
        return f"not measured: the run is {source.manifest.status}"
    return source.split_error


def _sme_of_failed(source: _Source, experiment: Experiment) -> str:
    """The SME mode it was to have; "auto" is what the CPU gives, where that is known."""
    cpu = source.manifest.cpu
    if experiment.sme != "auto" or cpu is None:
        return experiment.sme
    if cpu.has_sme2:
        return "sme2"
    return "sme1" if cpu.features.get("sme") else "off"


def _variant(source: _Source, experiment: Experiment) -> str | None:
    """Says what else was set for the experiment; runs that differ in it are not compared."""
    told = []
    if experiment.cpus:
        told.append(f"CPUs {','.join(map(str, experiment.cpus))}")
    if experiment.runner:
        told.append(f"runner {experiment.runner}")
    for name in ("launcher", "extra_arguments"):
        words: tuple[str, ...] = getattr(experiment, name)
        if words:
            told.append(f"{name} {' '.join(words)}")
    generation = source.manifest.settings.generation
    if generation is not None:
        told.append(f"{len(generation.prompt_tokens)} + {generation.new_tokens} tokens")
    return "; ".join(told) or None


def _revision(source: _Source) -> str | None:
    """Names what was measured; None where changed files leave that open."""
    manifest, git = source.manifest, source.manifest.git
    program = manifest.model.sha256
    if program is None or (git is not None and git.dirty is not False):
        return None
    runner = manifest.runner.model_dump() if manifest.runner else None
    inputs = [entry.sha256 for entry in manifest.inputs or ()]
    commit, pins = git.commit if git else None, manifest.pins
    generation = manifest.settings.generation
    generated = generation.model_dump(mode="json") if generation else None
    return short_hash(program, inputs, commit, pins, runner, generated)


def _artefacts(source: _Source, experiment: Experiment) -> dict[str, dict[str, Any]]:
    """The program, its inputs and the experiment's own files, by content."""
    found: dict[str, dict[str, Any]] = {}
    model = source.manifest.model
    named = {f"input_{i}": entry for i, entry in enumerate(source.manifest.inputs or ())}
    for name, entry in {"program": model, **named}.items():
        if entry.sha256:
            found[name] = entry.model_dump(include={"sha256", "size_bytes"})
    folder = safe_name(experiment.group or experiment.name)
    own_threads = re.compile(rf"(.*_t{experiment.threads}(?!\d)|(?!.*_t\d)).*")
    for name, measured in source.manifest.files.items():
        inside = name.startswith(f"{folder}/") and own_threads.fullmatch(name)
        if (inside or name == METRICS_FILE) and not _KEPT_IN_RAW.fullmatch(name):
            found[name] = {
                "sha256": measured.sha256,
                "size_bytes": measured.size_bytes or _size_bytes(source.run / name),
            }
    return found


def _size_bytes(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _read_metrics(measured: ExperimentMetrics) -> list[dict[str, Any]]:
    """Reduces blocks to metrics, by name; a metric that not all blocks have is left out."""
    blocks = [_block_values(block) for block in measured.blocks]
    return [
        _metric(name, [block[name] for block in blocks])
        for name in sorted(METRICS)
        if blocks and all(name in block for block in blocks)
    ]


def _metric(name: str, samples: Sequence[float]) -> dict[str, Any]:
    """Reduces block values to their median with its interval."""
    kind, interval = METRICS[name], median_interval(samples)
    return {
        "name": name,
        "unit": kind.unit,
        "higher_is_better": kind.higher_is_better,
        "value": median(samples),
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "count": len(samples),
        "samples": tuple(samples),
    }


def _block_values(block: BlockMetrics) -> dict[str, float]:
    """One value per metric of one process launch."""
    values: dict[str, float] = {
        "load_ns": block.load.program_ns + block.load.method_ns,
        "first_inference_ns": block.first_inference_ns,
        "latency_ns": float(np.median(block.latency_ns)),
        "latency_mean_ns": float(np.mean(block.latency_ns)),
        "latency_trimmed_mean_ns": trimmed_mean(block.latency_ns, _TRIM),
    }
    if block.memory.peak_rss_bytes is not None:
        values["peak_rss_bytes"] = block.memory.peak_rss_bytes
    return values | block_values(block)


def _read_categories(run: Path) -> tuple[dict[str, dict[str, float]], str | None]:
    """Mean time of an inference by category of operators, and why there is none."""
    if not find_etdumps(run):
        return {}, None
    try:
        analysis = analyze_run(LoadedRun.load(run))
    except EtprofError as error:
        return {}, f"operator split: {error}"
    found: dict[str, dict[str, float]] = {}
    for experiment in analysis.experiments if analysis.is_timed else ():
        totals = found.setdefault(experiment.name, {})
        for entry, total in class_totals_ns(experiment.split).items():
            time_ns = total / experiment.split.executions
            totals[entry.category] = totals.get(entry.category, 0.0) + time_ns
    return found, None


def _read_raw(run: Path) -> dict[str, dict[str, Any]]:
    """The experiments' objects in metrics.json, which has been checked before."""
    document = read_json(run / METRICS_FILE, way_out="measure again")
    return {clean(name): entry for name, entry in document["experiments"].items()}
