"""What an export is asked for, and the files it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from etprof.base.errors import UsageError
from etprof.export.options import ExportOptions
from etprof.export.precision import Precision, parse_precision

BACKENDS = ("xnnpack", "portable")


@dataclass(frozen=True)
class ExportRequest:
    """One model in one precision for one backend."""

    model: str
    """A registered name, or `path/to/file.py:ClassName`."""
    precision: str = "fp16"
    backend: str = "xnnpack"
    outdir: Path | None = None
    """Where the files go; default `out_<model>/artifacts`."""
    out: Path | None = None
    """The program's own path, instead of a name made of model, backend and precision."""
    options: ExportOptions = field(default_factory=ExportOptions)

    def parsed_precision(self) -> Precision:
        """Returns the precision; raises UsageError for an unknown name."""
        return parse_precision(self.precision)

    def model_name(self) -> str:
        """Returns the name used in file names: the registered one, the class's, or the file's."""
        path, _, class_name = self.model.rpartition(":")
        if path.endswith(".py"):
            return class_name
        return Path(self.model).stem if self.model.endswith(".py") else self.model

    def files(self) -> ExportedFiles:
        """Returns the paths this export writes; raises UsageError for a request without sense."""
        precision = self.parsed_precision()
        if self.backend not in BACKENDS:
            msg = f"unknown backend {self.backend!r}; choose one of {', '.join(BACKENDS)}"
            raise UsageError(msg)
        if precision.quantization is not None and self.backend == "portable":
            msg = f"precision {precision.name} needs backend xnnpack: portable kernels compute in float"
            raise UsageError(msg)
        self.options.check(self.backend)
        if self.out is not None and self.outdir is not None:
            msg = "--out names the file and --outdir its folder; give one of them"
            raise UsageError(msg)
        if self.out is not None:
            return ExportedFiles(_with_suffix(self.out))
        name = self.model_name()
        folder = self.outdir or Path(f"out_{name}") / "artifacts"
        return ExportedFiles(folder / f"{name}_{self.backend}_{precision.name}.pte")


def _with_suffix(path: Path) -> Path:
    """Returns `path` when it ends in `.pte`; raises UsageError when it does not."""
    if path.suffix != ".pte":
        msg = f"--out {path} must end in .pte"
        raise UsageError(msg)
    return path


@dataclass(frozen=True)
class ExportedFiles:
    """The files of one export, all beside the program and named after it."""

    pte: Path

    @property
    def etrecord(self) -> Path:
        """ExecuTorch's own description of the export, for its Inspector and for etprof."""
        return self._beside(".etrecord")

    @property
    def manifest(self) -> Path:
        """What was exported, how and with what; JSON."""
        return self._beside(".json")

    @property
    def external_data(self) -> Path:
        """The weights, when they are asked to be outside the program."""
        return self.pte.with_suffix(".ptd")

    @property
    def bundle(self) -> Path:
        """The program with its test cases inside, when it is asked for."""
        return self.pte.with_suffix(".bpte")

    @property
    def report(self) -> Path:
        """What is delegated and what is not, operator by operator; JSON."""
        return self._beside(".delegation.json")

    @property
    def graph(self) -> Path:
        """The lowered graphs as text, when they are asked for."""
        return self._beside(".graph.txt")

    @property
    def stage_trace(self) -> Path:
        """The export's stages and the steps in them as a Chrome trace, when it is asked for."""
        return self._beside(".stages.trace.json")

    @property
    def stage_graph(self) -> Path:
        """The same times summed as a flame graph, when it is asked for; HTML."""
        return self._beside(".stages.html")

    @property
    def memory_trace(self) -> Path:
        """The memory plan as a Chrome trace, when it is asked for."""
        return self._beside(".memory.trace.json")

    @property
    def data(self) -> Path:
        """The folder of example inputs and reference outputs."""
        return self._beside(".data")

    def written(self) -> list[Path]:
        """Returns the files that are there."""
        programs = (self.pte, self.external_data, self.bundle, self.etrecord)
        drawn = (self.graph, self.stage_trace, self.stage_graph, self.memory_trace)
        every = (*programs, self.manifest, self.report, *drawn, self.data)
        return [path for path in every if path.exists()]

    def _beside(self, suffix: str) -> Path:
        return self.pte.with_name(self.pte.name + suffix)
