"""Searches the best program of a model, keeping every trial, and writes what came of it."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import etprof
from etprof.base.atomic import write_json, write_text
from etprof.base.errors import ExportError, InputFileError
from etprof.base.files import hash_file
from etprof.base.records import read_record
from etprof.export.exporter import export_model
from etprof.optimize.recipe import write_recipe
from etprof.optimize.search import Search
from etprof.optimize.trial import Optimization, Trial, describe_trial
from etprof.registry import find_model
from etprof.run.delegation import DelegationReport
from etprof.run.program import ExportManifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.export.request import ExportedFiles, ExportRequest

PROGRAM: Final = "optimized.pte"
RECORD: Final = "optimize.json"
RECIPE: Final = "recipe.py"
_AGAIN: Final = "delete it to search anew"


@dataclass
class Optimizer:
    """One model, what may be done to it, and where the results go."""

    request: ExportRequest
    folder: Path
    tolerance_db: float
    budget_s: float | None
    tell: Callable[[str], None]
    known: dict[tuple[str, ...], Trial] = field(default_factory=dict)
    record: Optimization = field(init=False)
    _began_s: float = field(default_factory=time.monotonic)

    def run(self) -> Optimization:
        """Runs the search, from where an earlier one of the same program stopped.

        Raises what an export of the plain model raises, for without a baseline nothing can be
        better, and ExportError where the outputs are wrong and stay so.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record = self._recall()
        self.known = {each.rewrites: each for each in self.record.trials}
        names = self._names()
        search = Search(names, self.try_out, self.tolerance_db, self._is_time_left)
        baseline, best = search.run()
        if baseline.problem is not None:
            raise ExportError(baseline.problem)
        self._save(
            baseline=baseline,
            best=best,
            steps=tuple(search.steps),
            is_complete=search.is_complete,
        )
        if not best.passed:
            raise ExportError(
                f"the outputs of {self.record.model} in {self.record.precision} are wrong, and no "
                f"rewrite mends them; {self.folder / RECORD} has what was tried"
            )
        if best.rewrites:
            self._write_program(best)
        return self.record

    def try_out(self, names: tuple[str, ...]) -> Trial:
        """Returns the program made with the rewrites called `names`, exported at most once."""
        if names not in self.known:
            self.tell(f"trial {len(self.known) + 1}: {', '.join(names) or 'as it is'}")
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".trial-") as name:
                self.known[names] = self._export(names, Path(name, PROGRAM))
            self._save(trials=tuple(self.known.values()))
        return self.known[names]

    def _export(self, names: tuple[str, ...], program: Path) -> Trial:
        try:
            files = export_model(self._request(names, program))
        except ExportError as error:
            return Trial(rewrites=names, problem=str(error))
        return read_trial(names, files)

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

    def _is_time_left(self) -> bool:
        return self.budget_s is None or time.monotonic() - self._began_s < self.budget_s

    def _recall(self) -> Optimization:
        """Returns an earlier search's record where it is of the same program; else an empty one."""
        request, path = self.request, self.folder / RECORD
        made_of = _identify(request)
        fresh = Optimization(
            model=request.model_name(),
            precision=request.precision,
            backend=request.backend,
            made_of=made_of,
            tolerance_db=self.tolerance_db,
        )
        if not path.exists():
            return fresh
        known = read_record(Optimization, path, way_out=_AGAIN)
        if known.made_of != made_of:
            return fresh
        return fresh.model_copy(update={"trials": known.trials})

    def _save(self, **changes: object) -> None:
        self.record = self.record.model_copy(update=changes)
        write_json(self.folder / RECORD, self.record.model_dump(mode="json"))

    def _write_program(self, best: Trial) -> None:
        """Exports the best program for good, with its recipe."""
        self.tell(f"writing {self.folder / PROGRAM}")
        files = export_model(self._request(best.rewrites, self.folder / PROGRAM))
        made = read_trial(best.rewrites, files)
        if made != best.model_copy(update={"rewrites": made.rewrites}):
            msg = f"{files.pte} differs from the program that was tried; search again"
            raise InputFileError(msg)
        write_text(self.folder / RECIPE, write_recipe(self.request, best.rewrites))
        self._save(program=PROGRAM)


def read_trial(names: tuple[str, ...], files: ExportedFiles) -> Trial:
    """Returns what an export's own files say of it."""
    manifest = read_record(ExportManifest, files.manifest, way_out="export again")
    report = read_record(DelegationReport, files.report, way_out="export again")
    return describe_trial(names, manifest, report, files.pte.stat().st_size)


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
