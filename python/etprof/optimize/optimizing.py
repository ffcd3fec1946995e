"""Searches the best program of a model, keeping every trial, and writes what came of it."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from etprof._version import __version__
from etprof.base.atomic import write_json, write_text
from etprof.base.errors import EtprofError, ExportError, InputFileError
from etprof.base.files import hash_file
from etprof.base.records import read_record
from etprof.base.text import join_names
from etprof.base.units import MISSING, count_of, format_duration, format_share, format_value
from etprof.export.exporter import export_model
from etprof.export.request import ExportedFiles, parse_precision
from etprof.model_registry.registry import find_model
from etprof.optimize.combinations import choose_layers
from etprof.optimize.recipe import write_recipe
from etprof.optimize.search import FAR_DB, Search
from etprof.run.delegation import DelegationReport
from etprof.run.optimization import (
    FLOAT_LAYERS,
    Candidate,
    Optimization,
    OptimizationStep,
    PairTiming,
    Trial,
    describe_trial,
    exclusions_of,
)
from etprof.run.program import ExportManifest
from etprof.targets.local import LocalTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from etprof.export.request import ExportRequest
    from etprof.optimize.proving import TargetEvaluator
    from etprof.run.optimization import Gain

PROGRAM: Final = "optimized.pte"
BASELINE: Final = "baseline.pte"
RECORD: Final = "optimize.json"
RECIPE: Final = "recipe.py"
_NS_PER_S: Final = 1e9
_MOST_NAMED: Final = 3
"""Rewrites that a trial is named by: those that it has, or lacks."""
_TRIALS: Final = "trials"
"""Folder of the programs that were tried, by their numbers, until the search has ended."""
_RUNS: Final = "runs"
_AGAIN: Final = "delete it to search anew"


@dataclass
class Optimizer:
    """One model, what may be done to it, and where the results go."""

    request: ExportRequest
    folder: Path
    tolerance_db: float
    """How much nearer to eager the baseline may be than the result; where it is far above what the
    precision is held to, only if `holds_everywhere`."""
    budget_s: float | None
    tell: Callable[[str], None]
    holds_everywhere: bool = False
    """Whether the tolerance was asked for."""
    prover: TargetEvaluator | None = None
    """None: only the figures of exports decide."""
    cached_trials: dict[tuple[tuple[str, ...], tuple[str, ...]], Trial] = field(
        default_factory=dict
    )
    """By their choice and their layers in float32."""
    exclusions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Modules that a rewrite leaves as they are, since its outputs do not hold there; by its name."""
    counts_all: bool = False
    """Whether every program is counted: what was predicted of this model did not hold."""
    record: Optimization = field(init=False)
    _began_s: float = field(default_factory=time.monotonic)

    def run(self) -> Optimization:
        """Runs the search, from where an earlier one of the same program stopped.

        Raises what an export of the plain model raises, for without a baseline nothing can be
        better, what a launch raises, and ExportError where the outputs are wrong and stay so.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record = self._recall()
        self.cached_trials = {
            (trial.choice, trial.float_layers): trial for trial in self.record.trials
        }
        search, baseline, best = self._search()
        if baseline.problem is not None:
            self._clear()
            raise ExportError(baseline.problem)
        if not best.passed and self._mix_precisions(baseline):
            search, baseline, best = self._search()
        self._save(
            baseline=baseline,
            best=best,
            gains=search.gains,
            steps=tuple(search.steps),
            is_complete=search.is_complete,
        )
        if not best.passed or not best.rewrites:
            self._clear()
        if not best.passed:
            raise ExportError(self._describe_failure())
        if best.rewrites:
            self._keep(baseline)
            self._keep(best)
            self._note_left_out(search.steps)
            write_text(self.folder / RECIPE, write_recipe(self._request(best)))
            self._save(program=PROGRAM, plain_program=BASELINE)
        shutil.rmtree(self.folder / _TRIALS, ignore_errors=True)
        return self.record

    def _describe_failure(self) -> str:
        """Says that no program's outputs hold, and whether everything was tried."""
        msg = f"the outputs of {self.record.model} in {self.record.precision} are wrong"
        if self._is_time_left():
            tried = self.folder / RECORD
            return f"{msg}, and neither rewrites nor layers in float32 fix them; {tried} lists what was tried"
        return (
            f"{msg}, and the budget ended before everything that might fix them was tried; run the "
            "same command with a longer --budget to continue"
        )

    def _clear(self) -> None:
        """Removes the program of an earlier search, which this one's record does not answer for."""
        stems = [name.removesuffix(".pte") for name in (PROGRAM, BASELINE)]
        for pattern in (*(f"{stem}*" for stem in stems), RECIPE):
            for path in self.folder.glob(pattern):
                if path.is_file():
                    path.unlink()
        self._save(program=None, plain_program=None)

    def _search(self) -> tuple[Search, Trial, Trial]:
        """Returns a search that has ended, its baseline and its result, which is counted if any is.

        Where a count is not what was predicted, the search is made again, and counts every program.
        """
        prover = self.prover
        # What an earlier one left out it finds again, without an export.
        self.exclusions.clear()
        search = Search(
            self._names(),
            self.try_out,
            self.tolerance_db,
            self._is_time_left,
            measure=partial(self.measure, prover) if prover and prover.proves_times else None,
            discard=lambda trial: shutil.rmtree(self._place(trial).pte.parent, ignore_errors=True),
            find_modules=self._find_modules,
            exclude=self._exclude,
            losses_of=self._compare_inputs,
            far_db=math.inf if self.holds_everywhere else FAR_DB,
        )
        for name, why in self._left_out().items():
            search.steps.append(OptimizationStep(rewrite=name, kept=False, why=why))
        baseline, best = search.run()
        if prover is not None and not prover.proves_times and best.passed and not self.counts_all:
            best_trial = next(
                cached_trial
                for cached_trial in self.cached_trials.values()
                if cached_trial.number == best.number
            )
            counted = self._count(prover, best_trial)
            best = best.model_copy(update={"counted": counted.counted})
            if self.counts_all:
                return self._search()
        return search, baseline, best

    def try_out(self, names: tuple[str, ...]) -> Trial:
        """Returns the program made with the changes called `names`, exported at most once."""
        layers = self.record.float_layers if FLOAT_LAYERS in names else ()
        trial, prover = self._try(names, layers), self.prover
        if prover is not None and not prover.proves_times and trial.passed:
            is_end = names in {(), tuple(self._names())}
            if is_end or self.counts_all:
                return self._count(prover, trial)
        return trial

    def _try(self, names: tuple[str, ...], layers: tuple[str, ...]) -> Trial:
        wanted = self._plan(names, layers)
        if (wanted.choice, layers) not in self.cached_trials:
            number, began_s = wanted.number, time.monotonic()
            trial = self._export(wanted)
            self._remember(trial)
            elapsed_s = time.monotonic() - began_s
            subject = describe_choice(names, self._names(), len(layers), wanted.exclusions)
            duration = format_duration(elapsed_s * _NS_PER_S)
            self.tell(f"trial {number + 1}, {subject}: {describe_result(trial)} ({duration})")
            if not number:
                self.tell(self._describe_effort(elapsed_s))
            elif names == tuple(self._names()) and trial.problem is None:
                # Only now it is known which rewrites the model has use for.
                idle = len(names) - len(trial.without_idle().rewrites)
                self.tell(f"{idle} of {count_of(len(names), 'rewrite')} found nothing to change")
        return self.cached_trials[wanted.choice, layers]

    def _plan(self, names: tuple[str, ...], layers: tuple[str, ...] = ()) -> Trial:
        """Returns the next trial, yet without figures."""
        excluded = [f"{name}={path}" for name, paths in self.exclusions.items() for path in paths]
        return Trial(
            number=len(self.cached_trials),
            rewrites=names,
            float_layers=layers,
            exclusions=exclusions_of(names, excluded),
        )

    def _exclude(self, name: str, paths: Sequence[str]) -> None:
        self.exclusions[name] = tuple(paths)

    def _compare_inputs(self, trial: Trial, baseline: Trial) -> tuple[float, ...]:
        """Returns by how many dB a trial is further from eager than the baseline, input by input.

        At most once in all searches of the record. None where only the example's own inputs say it: of
        a model with state, where the model or a program fails on others, and when the budget ended.
        """
        from etprof.export.quality.input_spread import ratios_over_inputs

        trial = self.cached_trials.get((trial.choice, trial.float_layers), trial)
        if trial.losses_db is None and self._is_time_left():
            self.tell(f"comparing trial {trial.number + 1} with the plain program on more inputs")
            ratios: list[list[float]] | None = None
            try:
                files = (self._find(trial), self._find(baseline))
                ratios = ratios_over_inputs(self._request(baseline), files)
            except EtprofError as error:
                self.tell(f"its loss on the example's inputs counts: {error}")
            pairs = zip(*ratios, strict=True) if ratios else ()
            losses_db = tuple(plain_db - ratio_db for ratio_db, plain_db in pairs)
            trial = trial.model_copy(update={"losses_db": losses_db})
            if (trial.choice, trial.float_layers) in self.cached_trials:
                self._remember(trial)
        return trial.losses_db or ()

    def _find_modules(self, names: tuple[str, ...], name: str) -> tuple[str, ...]:
        """Returns the modules whose operators the rewrite called `name` replaces among `names`.

        The model itself is the empty path. None where it changes no traced graph.
        """
        from etprof.export.session import ExportSession
        from etprof.export.stages import StageClock

        request = self._request(self._plan(names))
        session = ExportSession(request, request.files(), StageClock(None))
        # Where it is the rewriting that fails, the last of its modules is where.
        with suppress(ExportError):
            session.rewrite()
        return tuple(session.rewriting.modules.get(name, ()))

    def _describe_effort(self, export_s: float) -> str:
        """Says how long the search takes, when the first of its exports has taken `export_s` seconds.

        One more trial has all rewrites, and each is left out once.
        """
        further = len(self._names()) + 1
        duration = _about(further * export_s)
        effort = (
            f"{count_of(further, 'more trial')} at most, {duration} in all; "
            "more only if a rewrite makes the program wrong or worse"
        )
        if self.prover is not None:
            work = "measurements" if self.prover.proves_times else "launches that count kernels"
            effort += f", plus {work}"
        if self.budget_s is None:
            return effort
        if not self._is_time_left():
            return f"the budget of {self.budget_s:g} s is over: one more trial, with all rewrites"
        return f"{effort}; after {self.budget_s:g} s none starts but the one with all rewrites"

    def _mix_precisions(self, baseline: Trial) -> bool:
        """Finds the layers that have to stay in float32; False where that is of no use.

        They are tried with all rewrites together, in the order of the error that each adds for the
        work that it does, as `etprof numerics` finds it on this computer.
        """
        if not self.record.float_layers and self._is_time_left():
            names = (FLOAT_LAYERS, *self._names())
            float_layers = choose_layers(
                self._rank_layers(baseline),
                lambda layers: self._try(names, layers).passed,
                self._is_time_left,
            )
            self._save(float_layers=float_layers)
        return bool(self.record.float_layers)

    def _rank_layers(self, baseline: Trial) -> list[str]:
        """Returns the paths of all layers; first what spoils the outputs most for its work."""
        from etprof.numerics.session import GapRequest, compare_with_eager

        self.tell("looking for the layers that spoil the outputs")
        files, plain = self._find(baseline), self._request(baseline)
        report = read_record(DelegationReport, files.report, way_out="export again")
        macs_by_module, noise = Counter[str](), Counter[str]()
        for method, described in report.methods.items():
            for operator in described.operators:
                macs_by_module[operator.origin.module_path] += operator.macs or 0
            try:
                gaps = compare_with_eager(GapRequest(export=plain, method=method), LocalTarget())
            except ExportError as error:
                self.tell(f"the layers of least work come first, for nothing is known: {error}")
            else:
                noise.update(gaps.added_noise(gaps.modes[0]))
        # A module's choice is that of what is in it; sums between layers are a module's own.
        work = {
            path: 1
            + sum(
                macs for name, macs in macs_by_module.items() if f"{name}.".startswith(f"{path}.")
            )
            for path in filter(None, macs_by_module)
        }
        return sorted(work, key=lambda path: (-noise[path] / work[path], work[path], path))

    def _count(self, prover: TargetEvaluator, trial: Trial) -> Trial:
        """Returns the trial with what the target counted of it, at most once."""
        if trial.counted is None:
            run = self.folder / _RUNS / f"{trial.number}_counted"
            self.tell(f"counting on {prover.target.platform}")
            counted = prover.count(self._find(trial).pte, trial.methods, run)
            trial = trial.model_copy(update={"counted": counted})
            self._remember(trial)
        self.counts_all = self.counts_all or not trial.is_as_predicted()
        return trial

    def measure(
        self, prover: TargetEvaluator, candidate: Trial, reference: Trial
    ) -> tuple[Gain, ...]:
        """Measures two programs in turns, at most once; raises like TargetEvaluator.time_in_turns."""
        for timing in self.record.timings:
            if (timing.candidate, timing.other) == (candidate.choice, reference.choice):
                return timing.gains
        self.tell(
            f"measuring trial {candidate.number + 1} interleaved with trial {reference.number + 1}"
        )
        gains = prover.time_in_turns(
            self._find(candidate).pte,
            self._find(reference).pte,
            candidate.methods,
            self.folder / _RUNS / f"{candidate.number}_against_{reference.number}",
        )
        timing = PairTiming(candidate=candidate.choice, other=reference.choice, gains=gains)
        self._save(timings=(*self.record.timings, timing))
        return gains

    def _remember(self, trial: Trial) -> None:
        self.cached_trials[trial.choice, trial.float_layers] = trial
        self._save(trials=tuple(self.cached_trials.values()))

    def _place(self, trial: Trial) -> ExportedFiles:
        """Returns where a trial's files are while the search goes on."""
        name = PROGRAM if trial.rewrites else BASELINE
        return ExportedFiles(self.folder / _TRIALS / str(trial.number) / name)

    def _export(self, trial: Trial) -> Trial:
        files = self._place(trial)
        try:
            export_model(self._request(trial))
        except ExportError as error:
            return trial.model_copy(update={"problem": str(error)})
        return read_trial(trial, files)

    def _find(self, trial: Trial) -> ExportedFiles:
        """Returns a trial's files, exported again where they are there no more."""
        files = self._place(trial)
        final_files = ExportedFiles(self.folder / files.pte.name)
        for candidate in (files, final_files):
            if (
                candidate.manifest.exists()
                and candidate.pte.exists()
                and _is_of(trial, candidate.pte)
            ):
                return candidate
        self.tell(f"exporting trial {trial.number + 1} again")
        export_model(self._request(trial))
        if trial.sha256 is not None and not _is_of(trial, files.pte):
            msg = f"{files.pte} differs from the program that was tried; {_AGAIN}: {RECORD}"
            raise InputFileError(msg)
        return files

    def _keep(self, trial: Trial) -> None:
        """Moves a trial's files beside the record; the manifest last, for it vouches for them."""
        files = self._find(trial)
        if files.pte.parent == self.folder:
            return
        for file in sorted(files.written(), key=lambda path: path == files.manifest):
            target = self.folder / file.name
            if target.is_dir():
                shutil.rmtree(target)
            file.replace(target)

    def _note_left_out(self, steps: Iterable[OptimizationStep]) -> None:
        """Writes beside the program what was tried and not kept: no finding advises it again."""
        files = ExportedFiles(self.folder / PROGRAM)
        manifest = read_record(ExportManifest, files.manifest, way_out=_AGAIN)
        left_out = {
            step.rewrite: f"`optimize` did not keep it: {step.why}"
            for step in steps
            if not step.kept and not step.is_idle
        }
        noted = {"rewrites_left_out": {**manifest.rewrites_left_out, **left_out}}
        write_json(files.manifest, manifest.model_copy(update=noted).model_dump(mode="json"))

    def _request(self, trial: Trial) -> ExportRequest:
        names = tuple(rewrite for rewrite in trial.rewrites if rewrite != FLOAT_LAYERS)
        scopes = (*self.request.options.scopes, *(f"{name}=fp32" for name in trial.float_layers))
        exclusions = (
            *exclusions_of(names, self.request.options.rewrite_exclusions),
            *trial.exclusions,
        )
        options = replace(
            self.request.options, rewrites=names, rewrite_exclusions=exclusions, scopes=scopes
        )
        # Wrong outputs are this search's to judge: a rewrite may mend those of the model as it is.
        program = self._place(trial).pte
        return replace(
            self.request, options=options, out=program, outdir=None, allow_inaccurate=True
        )

    def _names(self) -> Sequence[str]:
        """Returns those that the request has, or all that are sound here, with layers in float32."""
        from etprof.export.changes.rewriting import sound_rewrites

        mixed = [FLOAT_LAYERS] if self.record.float_layers else []
        precision_rewrites = self.request.precision_rewrites()
        sound = (rewrite.name for rewrite in sound_rewrites(self.request))
        return [*mixed, *(name for name in sound if name not in precision_rewrites)]

    def _left_out(self) -> Mapping[str, str]:
        from etprof.export.changes.rewriting import left_out_rewrites

        return left_out_rewrites(self.request)

    def _is_time_left(self) -> bool:
        return self.budget_s is None or time.monotonic() - self._began_s < self.budget_s

    def _recall(self) -> Optimization:
        """Returns an earlier search's record where it is of the same program; else an empty one."""
        request, path = self.request, self.folder / RECORD
        made_of = identify_subject(request)
        target = None if self.prover is None else self.prover.target.platform
        fresh = Optimization(
            model=request.model_name(),
            precision=request.precision,
            backend=request.backend,
            made_of=made_of,
            tolerance_db=self.tolerance_db,
            target=target,
        )
        if not path.exists():
            return fresh
        record = read_record(Optimization, path, way_out=_AGAIN)
        if record.made_of != made_of:
            return fresh
        is_same = record.target == target
        trials = tuple(
            trial.model_copy(
                update={"number": number} if is_same else {"number": number, "counted": None}
            )
            for number, trial in enumerate(record.trials)
        )
        timings = record.timings if is_same else ()
        return fresh.model_copy(
            update={"trials": trials, "timings": timings, "float_layers": record.float_layers}
        )

    def _save(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        write_json(self.folder / RECORD, self.record.model_dump(mode="json"))


def describe_choice(
    names: Sequence[str], every: Sequence[str], layers: int = 0, exclusions: Sequence[str] = ()
) -> str:
    """Returns which rewrites a trial has, by what it lacks where those are fewer.

    >>> describe_choice(["a", "c"], ["a", "b", "c"])
    'with a and c'
    """
    mixed = f", {count_of(layers, 'layer')} in float32" if layers else ""
    if exclusions:
        mixed += f", but for {count_of(len(exclusions), 'module')}"
    chosen_names = [name for name in names if name != FLOAT_LAYERS]
    missing = [name for name in every if name not in names and name != FLOAT_LAYERS]
    if not chosen_names:
        return f"as it is{mixed}"
    if not missing:
        return f"all rewrites{mixed}"
    if len(chosen_names) <= max(_MOST_NAMED, len(missing)):
        return f"with {join_names(chosen_names)}{mixed}"
    return f"without {join_names(missing)}{mixed}"


def _about(duration_s: float) -> str:
    """Says about how long something takes, of which nothing but a bound is known."""
    if duration_s < 90:
        return f"about {max(math.ceil(duration_s / 10), 1) * 10} s"
    return f"about {math.ceil(duration_s / 60)} min"


def describe_result(trial: Trial) -> str:
    """Returns what came out of a trial, or why nothing did."""
    if trial.problem is not None:
        return f"no program: {trial.problem}"
    share = trial.sme2_share(trial.macs)
    changes = [
        f"{MISSING if share is None else format_share(share)} of MACs on SME2 (predicted)",
        count_of(trial.delegate_calls, "delegate call"),
        f"{trial.outside} outside",
    ]
    if trial.snr_db is not None:
        changes.append(f"SNR {format_value('dB', trial.snr_db)}")
    return ", ".join(changes) + ("" if trial.passed else ": outputs wrong")


def _is_of(trial: Trial, program: Path) -> bool:
    return trial.sha256 == hash_file(program)


def find_other_searches(
    search: Optimization, folder: Path, tell: Callable[[str], None]
) -> list[Optimization]:
    """Returns the searches of the same model in other precisions, in folders beside this one.

    One that cannot be read is told and left out: this search is done, whatever lies beside it.
    """
    other_searches = []
    for path in sorted(folder.resolve().parent.glob(f"*/{RECORD}")):
        if path.parent == folder.resolve():
            continue
        try:
            record = read_record(Optimization, path, way_out=_AGAIN)
        except EtprofError as error:
            tell(f"left out of the page: {error}")
            continue
        if record.model == search.model and record.precision != search.precision:
            other_searches.append(record)
    return other_searches


def read_trial(trial: Trial, files: ExportedFiles) -> Trial:
    """Returns what an export's own files say of the trial that it was made for."""
    manifest = read_record(ExportManifest, files.manifest, way_out="export again")
    report = read_record(DelegationReport, files.report, way_out="export again")
    return describe_trial(trial, manifest, report, files.pte.stat().st_size)


def list_candidates(request: ExportRequest) -> tuple[Candidate, ...]:
    """Returns the rewrites and what each would change; traces the model and lowers nothing.

    Raises as an export does.
    """
    from etprof.export.session import ExportSession
    from etprof.export.stages import StageClock

    rewriting = ExportSession(request, request.files(), StageClock(None)).rewrite()
    scheme = parse_precision(request.precision).quantization
    is_dynamic = scheme is not None and scheme.activations == "dynamic"
    return tuple(
        Candidate(
            rewrite=rewrite.name,
            operators=rewriting.operators[rewrite.name] if rewrite.level == "graph" else None,
            changes=rewrite.changes,
        )
        for rewrite in rewriting.rewrites
        if rewrite.name not in rewriting.of_precision
        and (is_dynamic or rewrite.level != "quantization")
    )


def identify_subject(request: ExportRequest) -> str:
    """Hashes what decides a program: the model's code and weights, the options, the tools."""
    source, weights = find_model(request.model), request.options.weights
    options = {**request.options.document(), "rewrites": None}
    identity = {
        "model": request.model,
        "code": source.hash_files(),
        "weights": None if weights is None else hash_file(weights),
        "precision": request.precision,
        "least": dict(request.minimums),
        "options": options,
        "tools": [__version__, version("executorch"), version("torch")],
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
