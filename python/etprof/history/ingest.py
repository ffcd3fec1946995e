"""Reads a run directory as rows of the history, one per experiment, failed ones included."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import ValidationError

from etprof.analysis.exact_facts import facts_of_experiment, facts_of_program
from etprof.analysis.generation import block_values
from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.operators import category_times
from etprof.analysis.split.work import unique_names, work_by_operator
from etprof.base.errors import EtprofError, InputFileError
from etprof.base.json_input import parse_json
from etprof.base.records import first_problem
from etprof.base.text import RAW_NAMES, clean, clean_data, raw_names
from etprof.base.units import first_texts
from etprof.history.metric_names import METRICS
from etprof.history.schema import FAILED, OK, full_hash, make_run, short_hash
from etprof.run.accuracy import export_place
from etprof.run.directory import METRICS as METRICS_FILE
from etprof.run.directory import refuse_file_of_run, safe_name
from etprof.run.kernel_trace import BEFORE
from etprof.run.load import Run as LoadedRun
from etprof.run.manifest import MANIFEST, Experiment
from etprof.statistics.order_statistics import median_interval
from etprof.statistics.summary import trimmed_mean
from etprof.targets.registry import identify_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from etprof.analysis.exact_facts import ExactFacts
    from etprof.analysis.run_analysis import RunAnalysis
    from etprof.analysis.split.evidence import ModeEvidence
    from etprof.history.schema import Run
    from etprof.run.accuracy import Verdict
    from etprof.run.directory import BlockMetrics, ExperimentMetrics
    from etprof.run.kernel_trace import InstructionCounts
    from etprof.run.manifest import Manifest, MeasuredProgram

_KEPT_IN_RAW: Final = re.compile(r".*(_b\d+_result\.json|\.log|\.csv|\.html|\.md)")
"""Files whose content the store has anyway, or that can be made again."""


def read_run_directory(run: Path, *, device: str | None = None) -> list[Run]:
    """Returns the run directory's experiments; `device` is the name its owner gives the device.

    Raises InputFileError for anything else than a run directory, and for damaged files.
    """
    refuse_file_of_run(run)
    if not run.is_dir():
        msg = f"{run} is not a run directory; `etprof profile MODEL` makes one"
        raise InputFileError(msg)
    loaded = LoadedRun.load(run, strict=False)
    manifest = loaded.manifest
    if manifest is None:
        msg = f"{run} is not a run directory: no manifest.json; `etprof profile MODEL` makes one"
        raise InputFileError(msg)
    facts = _facts(loaded, manifest, device)
    analysis, problem = _analyze(loaded)
    further_facts = _facts_by_experiment(analysis) if analysis else {}
    damaged = _damaged(analysis)
    raw = _raw(loaded)
    stored = []
    try:
        for experiment in _experiments(manifest, loaded.timed):
            metrics = loaded.timed.get(experiment.name)
            # An untimed run has no blocks, and went well for all that.
            measured = metrics if metrics and (metrics.blocks or not loaded.is_timed) else None
            raw_experiment = raw.get(experiment.name)
            stored_run = make_run(
                {
                    **facts,
                    **_program_facts(manifest, experiment),
                    "key": _key(loaded, manifest, experiment, raw_experiment),
                    "experiment": experiment.name,
                    "status": OK if measured else FAILED,
                    "failure": _failure(manifest, experiment, measured)
                    or damaged.get(experiment.name, problem),
                    "sme_mode": (measured and measured.sme) or _sme_of_failed(manifest, experiment),
                    "threads": measured.threads if measured else experiment.threads,
                    "variant": _variant(manifest, experiment),
                    "wrong_outputs": _wrong_outputs(analysis.wrong if analysis else (), experiment),
                    "artefacts": _artefacts(run, manifest, experiment),
                    "metrics": _metrics(measured) if measured else (),
                    **further_facts.get(experiment.name, {}),
                    "raw": raw_experiment if measured else None,
                }
            )
            _keep_raw_names(manifest, experiment, stored_run)
            stored.append(stored_run)
    except ValidationError as error:
        msg = f"{run} says what no history takes: {first_problem(error)}; measure again"
        raise InputFileError(msg) from None
    if not stored:
        msg = f"{run} has no timed experiment; there is nothing for a history"
        raise InputFileError(msg)
    return stored


def _facts(loaded: LoadedRun, manifest: Manifest, device: str | None) -> dict[str, Any]:
    """What all experiments of a run have in common."""
    directory, git = loaded.source.resolve(), manifest.git
    build = manifest.runner.build if manifest.runner else {}
    version = build.get("executorch_version") or manifest.pins.get("executorch")
    kind, name, soc = identify_device(manifest.platform, manifest.target, manifest.cpu)
    return {
        "run_name": directory.name,
        "run_path": str(directory),
        "manifest_sha256": hashlib.sha256(loaded.contents[MANIFEST]).hexdigest(),
        "manifest_run_id": manifest.run_id,
        "measured_at": _measured_at(loaded.source, manifest),
        "device": device or name,
        "device_kind": kind,
        "soc": soc,
        **{f"git_{name}": fact for name, fact in (git.model_dump() if git else {}).items()},
        "executorch_version": str(version) if version else None,
        "pins": manifest.pins,
        "representative": loaded.is_timed,
    }


_OF_A_PROGRAM: Final = {"name", "precision", "backend", "method"}


def _program_facts(manifest: Manifest, experiment: Experiment) -> dict[str, Any]:
    """What the experiments of a program have in common: a series is of one program."""
    program = manifest.every_program[experiment.program]
    return {
        "model": program.model.name,
        **program.model.model_dump(include=_OF_A_PROGRAM - {"name"}),
        "revision": _revision(manifest, program),
    }


def _measured_at(run: Path, manifest: Manifest) -> datetime:
    """When the run was started."""
    try:
        moment = datetime.fromisoformat(manifest.created_at or "")
    except ValueError:
        msg = f"{run}/manifest.json is damaged: created_at: not a time; measure again"
        raise InputFileError(msg) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _experiments(
    manifest: Manifest, timed: Mapping[str, ExperimentMetrics]
) -> Iterator[Experiment]:
    """Experiments that are timed, planned ones first; of an imported run, those that have times."""
    planned = {experiment.name for experiment in manifest.experiments}
    timed_setups = (e for e in manifest.experiments if e.mode == "timing")
    yield from (
        setup for setup in timed_setups if not manifest.imported or timed[setup.name].blocks
    )
    for name, metrics in timed.items():
        if name not in planned:
            yield Experiment(name=name, sme=metrics.sme or "auto", threads=metrics.threads or 0)


def _raw(loaded: LoadedRun) -> dict[str, dict[str, Any]]:
    """The experiments' objects in metrics.json, which has been checked."""
    content = loaded.contents.get(METRICS_FILE)
    experiments = parse_json(content)["experiments"] if content else {}
    return {clean(name): raw_run for name, raw_run in experiments.items()}


def _keep_raw_names(manifest: Manifest, experiment: Experiment, run: Run) -> None:
    """Keeps the bytes of changed names beside the raw samples; a failed run has no such place."""
    named = manifest.model_dump(include={"model", "programs", "platform", "git", "cpu", "target"})
    changed = raw_names(named, experiment.model_dump(mode="json"), manifest.pins, run.facts())
    if run.raw_row is not None and changed:
        run.raw_row.document = {**run.raw_row.document, RAW_NAMES: changed}


def _key(loaded: LoadedRun, manifest: Manifest, experiment: Experiment, raw: object) -> str:
    """Hashes what makes this run: which one, which launches when, and all they measured.

    The rest of the manifest may change without another run: a resume that finds all launches done
    writes it anew, with another command, load and time.
    """
    if manifest.run_id is None:
        return _key_without_run_id(loaded, manifest, experiment.name, raw)
    launches = [
        (launch.started_at, launch.purpose, launch.block, launch.error)
        for launch in manifest.launches
        if launch.experiment == experiment.name
    ]
    return full_hash(manifest.run_id, experiment.name, launches, raw)


def _key_without_run_id(loaded: LoadedRun, manifest: Manifest, name: str, raw: object) -> str:
    """The key that stores have for a run of the first schema; independent of today's records."""
    as_written = parse_json(loaded.contents[MANIFEST])
    document, metrics = clean_data(as_written), loaded.timed.get(name)
    positions = (i for i, e in enumerate(document.get("experiments", ())) if e.get("name") == name)
    number = next(positions, None)
    # Texts that are used, not shown, were hashed as they came.
    cleaned, raw_setup = ({}, {}) if number is None else (
        document["experiments"][number], as_written["experiments"][number]
    )  # fmt: skip
    planned = {
        "name": name,
        "sme": cleaned.get("sme", metrics.sme if metrics else None),
        "threads": cleaned.get("threads", metrics.threads if metrics else None),
        "group": cleaned.get("group", ""),
        "mode": cleaned.get("mode", "timing"),
        "cpus": raw_setup.get("cpus", ()),
        "runner": raw_setup.get("runner"),
        "launcher": raw_setup.get("launcher", ()),
        "extra_arguments": raw_setup.get("extra_arguments", ()),
        "iterations": raw_setup.get("iterations"),
        "warmup": raw_setup.get("warmup"),
    }
    launches = [
        (launch["started_at"], launch["purpose"], launch.get("block"), launch.get("error"))
        for launch in document.get("launches", ())
        if launch["experiment"] == name
    ]
    began = launches or document.get("created_at")
    return full_hash(
        manifest.model.name, manifest.model.sha256, manifest.platform, planned, began, raw
    )


def _failure(
    manifest: Manifest, experiment: Experiment, measured: ExperimentMetrics | None
) -> str | None:
    """Says what failed and was not made good by a later try; None when nothing did."""
    launches = [r for r in manifest.launches if r.experiment == experiment.name]
    done = {(r.purpose, r.block) for r in launches if r.error is None}
    errors = [r for r in launches if r.error is not None and (r.purpose, r.block) not in done]
    if errors:
        return ", ".join(first_texts([f"{r.purpose}: {r.error}" for r in errors], 1, "error"))
    if measured is None:
        return f"not measured: the run is {manifest.status}"
    return None


def _sme_of_failed(manifest: Manifest, experiment: Experiment) -> str:
    """The SME mode it was to have; "auto" is what the CPU gives, where that is known."""
    cpu = manifest.cpu
    if experiment.sme != "auto" or cpu is None:
        return experiment.sme
    if cpu.has_sme2:
        return "sme2"
    return "sme1" if cpu.features.get("sme") else "off"


def _variant(manifest: Manifest, experiment: Experiment) -> str | None:
    """Says what else was set for the experiment; runs that differ in it are not compared."""
    facts = []
    if _needs_its_name(manifest, experiment.program):
        facts.append(f"program {experiment.program}")
    if experiment.cpus:
        facts.append(f"CPUs {','.join(map(str, experiment.cpus))}")
    if experiment.runner:
        facts.append(f"runner {experiment.runner}")
    for name in ("launcher", "extra_arguments"):
        arguments: tuple[str, ...] = getattr(experiment, name)
        if arguments:
            facts.append(f"{name} {' '.join(arguments)}")
    generation = manifest.settings.generation
    if generation is not None:
        facts.append(f"{len(generation.prompt_tokens)} + {generation.new_tokens} tokens")
    return "; ".join(facts) or None


def _needs_its_name(manifest: Manifest, program: str) -> bool:
    """Whether an earlier program of the run has the same facts, so that only names differ."""
    every = {name: program.model for name, program in manifest.every_program.items()}
    facts = {name: model.model_dump(include=_OF_A_PROGRAM) for name, model in every.items()}
    before = list(facts)[: list(facts).index(program)]
    return any(facts[name] == facts[program] for name in before)


def _revision(manifest: Manifest, measured: MeasuredProgram) -> str | None:
    """Names what was measured; None where changed files leave that open."""
    git, program = manifest.git, measured.model.content
    if program is None or (git is not None and git.dirty is not False):
        return None
    runner = manifest.runner.model_dump() if manifest.runner else None
    inputs = [file.sha256 for file in measured.inputs or ()]
    commit, pins = git.commit if git else None, manifest.pins
    generation = manifest.settings.generation
    generated = generation.model_dump(mode="json") if generation else None
    return short_hash(program, inputs, commit, pins, runner, generated)


def _artefacts(run: Path, manifest: Manifest, experiment: Experiment) -> dict[str, dict[str, Any]]:
    """The program, its inputs and the experiment's own files, by content."""
    artefacts: dict[str, dict[str, Any]] = {}
    program = manifest.every_program[experiment.program]
    model = program.model
    named = {f"input_{i}": file for i, file in enumerate(program.inputs or ())}
    if model.data is not None:
        named["weights"] = model.data
    for name, file in {"program": model, **named}.items():
        if file.sha256:
            artefacts[name] = file.model_dump(include={"sha256", "size_bytes"})
    folder = safe_name(experiment.group or experiment.name)
    own_threads = re.compile(rf"(.*_t{experiment.threads}(?!\d)|(?!.*_t\d)).*")
    for name, measured in manifest.files.items():
        inside = name.startswith(f"{folder}/") and own_threads.fullmatch(name)
        if (inside or name == METRICS_FILE) and not _KEPT_IN_RAW.fullmatch(name):
            artefacts[name] = {
                "sha256": measured.sha256,
                "size_bytes": measured.size_bytes or _size_bytes(run / name),
            }
    return artefacts


def _size_bytes(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _metrics(measured: ExperimentMetrics) -> list[dict[str, Any]]:
    """Reduces blocks to metrics, by name; a metric that not all blocks have is left out."""
    blocks = [_block_values(block) for block in measured.blocks]
    return [
        metric_of(name, [block[name] for block in blocks])
        for name in sorted(METRICS)
        if blocks and all(name in block for block in blocks)
    ]


def metric_of(name: str, samples: Sequence[float]) -> dict[str, Any]:
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
        "latency_ns": float(np.median(block.latency_ns)),
        "latency_mean_ns": float(np.mean(block.latency_ns)),
        "latency_trimmed_mean_ns": trimmed_mean(block.latency_ns),
    }
    optional = {
        "load_ns": block.load.total_ns,
        "first_inference_ns": block.first_inference_ns,
        "peak_rss_bytes": block.memory.peak_rss_bytes,
    }
    values |= {name: value for name, value in optional.items() if value is not None}
    return values | block_values(block)


def _analyze(loaded: LoadedRun) -> tuple[RunAnalysis | None, str | None]:
    """Returns what the run's files give, and why a part of it is missing."""
    if loaded.problem is not None:
        return None, f"per-operator breakdown: {loaded.problem}"
    try:
        return analyze_run(loaded), "; ".join(loaded.problems) or None
    except EtprofError as error:
        return None, f"per-operator breakdown: {error}"


def _categories(analysis: RunAnalysis) -> dict[str, dict[str, float]]:
    """Mean time of an inference by category of operators."""
    times_by_experiment: dict[str, dict[str, float]] = {}
    for experiment in analysis.experiments:
        totals = times_by_experiment.setdefault(experiment.name, {})
        for name, times in category_times(experiment.split).items():
            if times.total_ns:
                totals[name] = times.mean_ns
    return times_by_experiment


def _damaged(analysis: RunAnalysis | None) -> dict[str, str]:
    """Says by experiment why its per-operator breakdown could not be read."""
    unprofiled = analysis.loaded.others if analysis else ()
    return {
        experiment.name: f"per-operator breakdown: {experiment.damage}"
        for experiment in unprofiled
        if experiment.damage
    }


def _works(analysis: RunAnalysis) -> dict[str, dict[str, Any] | None]:
    took = analysis.instructions
    return {
        experiment.name: _work(experiment.counted, took.get(experiment.name))
        for experiment in analysis.experiments
    }


def _facts_by_experiment(analysis: RunAnalysis) -> dict[str, dict[str, Any]]:
    """What the analysis says of each experiment, by its columns."""
    columns: dict[str, Mapping[str, Any]] = {
        "categories": _categories(analysis),
        "work": _works(analysis),
        "exact_facts": _exact_facts(analysis),
    }
    names = {name for facts in columns.values() for name in facts}
    return {
        name: {column: facts[name] for column, facts in columns.items() if name in facts}
        for name in names
    }


def _exact_facts(analysis: RunAnalysis) -> dict[str, ExactFacts]:
    """What no noise changes, by experiment; without a split, what the program's files say."""
    verdicts = analysis.verdicts
    unsplit = {
        launches.name: facts_of_program(launches.program, verdicts)
        for launches in analysis.loaded.others
    }
    return unsplit | {
        experiment.name: facts_of_experiment(experiment, verdicts)
        for experiment in analysis.experiments
    }


def _work(
    counted: ModeEvidence | None, instructions: InstructionCounts | None
) -> dict[str, Any] | None:
    """Returns what was counted, by operator; None where nothing was, or not all of it."""
    if counted is None or not (counted.steady and counted.is_complete):
        return None
    operators = {
        name: {
            "calls": calls,
            "macs": work.macs if work else 0,
            "padded_macs": work.computed - work.macs if work else 0,
            "steps": work.steps if work else 0,
            "bytes": work.left_bytes + work.right_bytes + work.output_bytes if work else 0,
        }
        for name, (calls, work) in work_by_operator(counted).items()
    }
    has_instructions = instructions is not None and instructions.is_steady
    if instructions is not None and has_instructions:
        names = dict(enumerate(unique_names(counted), start=1))
        for operator in instructions.operators:
            name = names.get(operator.place, operator.name)
            operators.setdefault(name, {"calls": 0})["instructions"] = operator.total
        operators[BEFORE] = {"calls": 0, "instructions": sum(instructions.setup.values())}
    if not operators:
        return None
    facts = {"svl_bits": counted.svl_bits, "has_instructions": has_instructions}
    return {**facts, "operators": operators}


def _wrong_outputs(wrong: Sequence[Verdict], experiment: Experiment) -> str | None:
    """Says what is wrong with the outputs of the program, or of this experiment."""
    locations = {export_place(experiment.program), experiment.name}
    texts = [verdict.text for verdict in wrong if verdict.where in locations]
    return "; ".join(texts) or None
