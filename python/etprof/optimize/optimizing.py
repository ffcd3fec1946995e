"""Searches the best program of a model, keeping every trial, and writes what came of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import etprof
from etprof.base.atomic import write_json, write_text
from etprof.base.errors import EtprofError, ExportError, InputFileError
from etprof.base.files import hash_file
from etprof.base.records import read_record
from etprof.export.exporter import export_model
from etprof.export.request import ExportedFiles
from etprof.optimize.recipe import write_recipe
from etprof.optimize.search import Search
from etprof.optimize.trial import Candidate, Optimization, Step, Timing, Trial, describe_trial
from etprof.registry import find_model
from etprof.run.delegation import DelegationReport
from etprof.run.program import ExportManifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from etprof.export.request import ExportRequest
    from etprof.optimize.proving import Prover
    from etprof.optimize.trial import Gain

PROGRAM: Final = "optimized.pte"
BASELINE: Final = "baseline.pte"
RECORD: Final = "optimize.json"
RECIPE: Final = "recipe.py"
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
    budget_s: float | None
    tell: Callable[[str], None]
    prover: Prover | None = None
    """None: only the figures of exports decide."""
    known: dict[tuple[str, ...], Trial] = field(default_factory=dict)
    record: Optimization = field(init=False)
    _began_s: float = field(default_factory=time.monotonic)

    def run(self) -> Optimization:
        """Runs the search, from where an earlier one of the same program stopped.

        Raises what an export of the plain model raises, for without a baseline nothing can be
        better, what a launch raises, and ExportError where the outputs are wrong and stay so.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record = self._recall()
        self.known = {each.rewrites: each for each in self.record.trials}
        prover = self.prover
        search = Search(
            self._names(),
            self.try_out,
            self.tolerance_db,
            self._is_time_left,
            measure=partial(self.measure, prover) if prover and prover.proves_times else None,
            discard=lambda trial: shutil.rmtree(self._place(trial).pte.parent, ignore_errors=True),
        )
        for name, why in self._left_out().items():
            search.steps.append(Step(rewrite=name, kept=False, why=why))
        baseline, best = search.run()
        if baseline.problem is not None:
            raise ExportError(baseline.problem)
        self._save(
            baseline=baseline,
            best=best,
            gains=search.gains,
            steps=tuple(search.steps),
            is_complete=search.is_complete,
        )
        if not best.passed:
            raise ExportError(
                f"the outputs of {self.record.model} in {self.record.precision} are wrong, and no "
                f"rewrite mends them; {self.folder / RECORD} has what was tried"
            )
        if best.rewrites:
            self._keep(baseline)
            self._keep(best)
            write_text(self.folder / RECIPE, write_recipe(self.request, best.rewrites))
            self._save(program=PROGRAM, plain_program=BASELINE)
        shutil.rmtree(self.folder / _TRIALS, ignore_errors=True)
        return self.record

    def try_out(self, names: tuple[str, ...]) -> Trial:
        """Returns the program made with the rewrites called `names`, exported at most once."""
        if names not in self.known:
            self.tell(f"trial {len(self.known) + 1}: {', '.join(names) or 'as it is'}")
            self._remember(self._export(names, len(self.known)))
        trial, prover = self.known[names], self.prover
        if (
            prover is not None
            and not prover.proves_times
            and trial.counted is None
            and trial.passed
        ):
            run = self.folder / _RUNS / f"{trial.number}_counted"
            self.tell(f"counting on {prover.target.platform}")
            counted = prover.count(self._find(trial).pte, trial.methods, run)
            self._remember(trial.model_copy(update={"counted": counted}))
        return self.known[names]

    def measure(self, prover: Prover, candidate: Trial, other: Trial) -> tuple[Gain, ...]:
        """Measures two programs in turns, at most once; raises as `Prover.time_in_turns` does."""
        for each in self.record.timings:
            if (each.candidate, each.other) == (candidate.rewrites, other.rewrites):
                return each.gains
        self.tell(f"measuring trial {candidate.number + 1} in turns with trial {other.number + 1}")
        gains = prover.time_in_turns(
            self._find(candidate).pte,
            self._find(other).pte,
            candidate.methods,
            self.folder / _RUNS / f"{candidate.number}_against_{other.number}",
        )
        timing = Timing(candidate=candidate.rewrites, other=other.rewrites, gains=gains)
        self._save(timings=(*self.record.timings, timing))
        return gains

    def _remember(self, trial: Trial) -> None:
        self.known[trial.rewrites] = trial
        self._save(trials=tuple(self.known.values()))

    def _place(self, trial: Trial) -> ExportedFiles:
        """Returns where a trial's files are while the search goes on."""
        name = PROGRAM if trial.rewrites else BASELINE
        return ExportedFiles(self.folder / _TRIALS / str(trial.number) / name)

    def _export(self, names: tuple[str, ...], number: int) -> Trial:
        files = self._place(Trial(rewrites=names, number=number))
        try:
            export_model(self._request(names, files.pte))
        except ExportError as error:
            return Trial(rewrites=names, number=number, problem=str(error))
        return read_trial(names, files, number)

    def _find(self, trial: Trial) -> ExportedFiles:
        """Returns a trial's files, exported again where they are there no more."""
        files = self._place(trial)
        kept = ExportedFiles(self.folder / files.pte.name)
        for each in (files, kept):
            if each.manifest.exists() and each.pte.exists() and _is_of(trial, each.pte):
                return each
        self.tell(f"exporting trial {trial.number + 1} again")
        export_model(self._request(trial.rewrites, files.pte))
        if trial.sha256 is not None and not _is_of(trial, files.pte):
            msg = f"{files.pte} differs from the program that was tried; {_AGAIN}: {RECORD}"
            raise InputFileError(msg)
        return files

    def _keep(self, trial: Trial) -> None:
        """Moves a trial's files beside the record; the manifest last, for it vouches for them."""
        files = self._find(trial)
        if files.pte.parent == self.folder:
            return
        for each in sorted(files.written(), key=lambda path: path == files.manifest):
            target = self.folder / each.name
            if target.is_dir():
                shutil.rmtree(target)
            each.replace(target)

    def _request(self, names: tuple[str, ...], program: Path) -> ExportRequest:
        options = replace(self.request.options, rewrites=names)
        # Wrong outputs are this search's to judge: a rewrite may mend those of the model as it is.
        return replace(
            self.request, options=options, out=program, outdir=None, allow_inaccurate=True
        )

    def _names(self) -> Sequence[str]:
        """Returns those that the request has, or all that are sound here."""
        from etprof.export.changes.rewriting import sound_rewrites

        return [each.name for each in sound_rewrites(self.request)]

    def _left_out(self) -> Mapping[str, str]:
        from etprof.export.changes.rewriting import left_out_rewrites

        return left_out_rewrites(self.request)

    def _is_time_left(self) -> bool:
        return self.budget_s is None or time.monotonic() - self._began_s < self.budget_s

    def _recall(self) -> Optimization:
        """Returns an earlier search's record where it is of the same program; else an empty one."""
        request, path = self.request, self.folder / RECORD
        made_of = _identify(request)
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
        known = read_record(Optimization, path, way_out=_AGAIN)
        if known.made_of != made_of:
            return fresh
        is_same = known.target == target
        trials = tuple(
            each.model_copy(
                update={"number": number} if is_same else {"number": number, "counted": None}
            )
            for number, each in enumerate(known.trials)
        )
        timings = known.timings if is_same else ()
        return fresh.model_copy(update={"trials": trials, "timings": timings})

    def _save(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        write_json(self.folder / RECORD, self.record.model_dump(mode="json"))


def _is_of(trial: Trial, program: Path) -> bool:
    return trial.sha256 == hash_file(program)


def find_others(
    found: Optimization, folder: Path, tell: Callable[[str], None]
) -> list[Optimization]:
    """Returns the searches of the same model in other precisions, in folders beside this one.

    One that cannot be read is told and left out: this search is done, whatever lies beside it.
    """
    others = []
    for path in sorted(folder.resolve().parent.glob(f"*/{RECORD}")):
        if path.parent == folder.resolve():
            continue
        try:
            other = read_record(Optimization, path, way_out=_AGAIN)
        except EtprofError as error:
            tell(f"left out of the page: {error}")
            continue
        if other.model == found.model and other.precision != found.precision:
            others.append(other)
    return others


def read_trial(names: tuple[str, ...], files: ExportedFiles, number: int) -> Trial:
    """Returns what an export's own files say of it."""
    manifest = read_record(ExportManifest, files.manifest, way_out="export again")
    report = read_record(DelegationReport, files.report, way_out="export again")
    return describe_trial(names, manifest, report, files.pte.stat().st_size, number)


def list_candidates(request: ExportRequest) -> tuple[Candidate, ...]:
    """Returns the rewrites and what each would change; traces the model and lowers nothing.

    Raises as an export does.
    """
    from etprof.export.session import ExportSession
    from etprof.export.stages import StageClock

    rewriting = ExportSession(request, request.files(), StageClock(None)).rewrite()
    return tuple(
        Candidate(
            rewrite=each.name,
            operators=rewriting.operators[each.name] if each.level == "graph" else None,
            changes=each.changes,
        )
        for each in rewriting.asked
    )


def _identify(request: ExportRequest) -> str:
    """Hashes what decides a program: the model's code and weights, the options, the tools."""
    source, weights = find_model(request.model), request.options.weights
    known = {
        "model": request.model,
        "code": source.hash_files(),
        "weights": None if weights is None else hash_file(weights),
        "precision": request.precision,
        "least": dict(request.least),
        "options": {**request.options.document(), "rewrites": None},
        "tools": [etprof.__version__, version("executorch"), version("torch")],
    }
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
