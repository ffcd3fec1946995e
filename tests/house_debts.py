"""What the house's rules do not hold for yet; every list here may only become shorter.

`tests/unit/test_codebase.py` holds the rules. Whoever removes the last cause of an entry, removes
the entry; whoever adds one, says here why it has to be.
"""

from __future__ import annotations

WIDE_FOLDERS: dict[str, int] = {}
"""Modules in a folder, where more than 15."""

IMPORTED_ONCE = {
    "analysis/split/duration_counts.py": "beside it operators.py would have more than 600 lines",
    "bench/remote.py": "runs on a worker, which imports nothing else of the pool",
    "dashboard/views/report.py": "a page",
    "cli/surroundings.py": "what is looked at before any command",
    "targets/debugger/call_log.py": "with it watcher.py would have more than 600 lines",
    "etrecord/archive.py": "reads a stranger's archive without PyTorch; what is in it, others read",
    "export/bundle_runtime.py": "a program of its own, in a process of its own",
    "export/quality/reading.py": "a program of its own, in a process of its own",
    "model_explorer/run_graph.py": "what is told; only the other module needs Model Explorer",
    "optimize/recipe.py": "the text of a program of its own",
}
"""Modules of up to 150 lines that only one module of their folder imports, and why."""

IMPORTED_ONCE_YET: set[str] = set()
"""The same without a reason: they are to be folded."""

HOLD_PATHS: frozenset[str] = frozenset()
"""Modules of analysis, tables and views that import pathlib."""

DOUBLED_CLASSES = {"Experiment", "Run"}
"""Classes of one name: those of the Python API, and the records that they are views of."""

OWN_FORMATS = 33
"""Numbers formatted outside base/units.py, at most."""

_FOR_PEOPLE = "people read it in the export's own files"
_IN_JSON = "people read it in a report's JSON"
_OF_AN_ETDUMP = "what an ETDump holds, for users of the reader"
UNREAD_FIELDS = {
    "BundleCheck.relative_tolerance": _FOR_PEOPLE,
    "CheckedOutput.snr_db_precision": _FOR_PEOPLE,
    "CheckedOutput.top1_agreement": _FOR_PEOPLE,
    "DelegationReport.prediction_source": _FOR_PEOPLE, "ExportManifest.stages": _FOR_PEOPLE,
    "LaunchRecord.layout_shift_bytes": "people read it in a manifest, to see what a launch drew",
    "MemoryPlan.peak_node": _FOR_PEOPLE, "MemoryPlan.tensors_at_peak": _FOR_PEOPLE,
    "MethodSummary.delegated_operator_share": _FOR_PEOPLE,
    "BlockColumns.bundled_input_index": _OF_AN_ETDUMP, "BlockColumns.event_end": _OF_AN_ETDUMP,
    "DebugColumns.is_output": _OF_AN_ETDUMP,
    "Quantization.activation_bits": _FOR_PEOPLE,
    "QuantizationReport.calibration_samples": _FOR_PEOPLE,
    "SampleSummary.outliers": _IN_JSON,
}  # fmt: skip
"""Fields of records and dataclasses that only tests read, and why they are there."""
