"""`analyze FILE.etdump --etrecord` says what ExecuTorch's own Inspector says of the same files."""

from __future__ import annotations

import json
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from etprof.analysis.run_analysis import ExperimentAnalysis, analyze_run
from etprof.base.errors import InputFileError, UsageError
from etprof.cli import main
from etprof.etrecord.program import describe_etrecord, describe_program
from etprof.export.request import ExportRequest
from etprof.importing.bare_etdump import ClockOptions, load_bare_etdump
from tests.world.host import etprof

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from etprof.run.delegation import DelegationReport
    from etprof.run.load import Run
    from tests.integration.conftest import Exports


class Recorded(NamedTuple):
    """A program, its ETRecord and an ETDump of ExecuTorch's own runtime, in a folder of their own."""

    pte: Path
    etrecord: Path
    etdump: Path


def record(exports: Exports, backend: str, folder: Path) -> Recorded:
    files = exports.get(ExportRequest("toy_cnn", "fp32", backend=backend))
    found = Recorded(*(folder / f"{backend}.{end}" for end in ("pte", "etrecord", "etdump")))
    shutil.copy(files.pte, found.pte)
    shutil.copy(files.etrecord, found.etrecord)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(str(found.pte), enable_etdump=True)
        method = program.load_method("forward")
        assert method is not None
        shape = tuple(method.metadata.input_tensor_meta(0).sizes())
        for _ in range(4):
            method.execute((torch.zeros(shape),))
        program.write_etdump_result_to_file(str(found.etdump), str(folder / "debug.bin"))
    return found


@pytest.fixture(scope="module", params=["xnnpack", "portable"])
def recorded(
    request: pytest.FixtureRequest, exports: Exports, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    return record(exports, request.param, tmp_path_factory.mktemp("upstream"))


def analyzed(files: Recorded, *, with_program: bool) -> ExperimentAnalysis:
    told = ClockOptions(
        time_scale="ns",
        etrecord=files.etrecord,
        describe=(lambda _: describe_program(files.pte, files.etrecord))
        if with_program
        else (lambda calls: describe_etrecord(files.etrecord, calls)),
    )
    (found,) = analyze_run(load_bare_etdump(files.etdump, told)).experiments
    return found


def of_inspector(files: Recorded) -> dict[int, tuple[set[int], str]]:
    """Returns debug handles and stack traces of each kernel outside delegates, by instruction."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.devtools import Inspector

        inspector = Inspector(etdump_path=str(files.etdump), etrecord=str(files.etrecord))
    found = {}
    for block in inspector.event_blocks:
        for event in block.events:
            if event.name.startswith("native_call_") and event._instruction_id is not None:
                handles = event.debug_handles
                own = {handles} if isinstance(handles, int) else set(handles or ())
                found[event._instruction_id] = (own, json.dumps(event.stack_traces))
    return found


@pytest.mark.parametrize("with_program", [True, False])
def test_every_operator_outside_delegates_is_what_inspector_says(
    recorded: Recorded, with_program: bool
) -> None:
    experiment = analyzed(recorded, with_program=with_program)
    expected, compared = of_inspector(recorded), 0
    for row, found in zip(experiment.split.rows, experiment.attributions, strict=True):
        if row.is_delegated or row.instruction_id not in expected or found is None:
            continue
        handles, traces = expected[row.instruction_id]
        (operator,) = found.behind
        assert operator.debug_handle in handles
        source = operator.origin.source
        assert source is not None
        assert f"line {source.line}, in" in traces
        assert Path(source.file).name in traces
        compared += 1
    assert compared >= (1 if "xnnpack" in recorded.pte.name else 5)


def test_with_the_program_operators_inside_delegates_have_modules_too(recorded: Recorded) -> None:
    experiment = analyzed(recorded, with_program=True)
    own = [
        found
        for row, found in zip(experiment.split.rows, experiment.attributions, strict=True)
        if row.is_delegated and found is not None and any(found.modules)
    ]
    assert len(own) >= (5 if "xnnpack" in recorded.pte.name else 0)


def test_the_command_finds_the_program_beside_the_etrecord(
    recorded: Recorded, tmp_path: Path
) -> None:
    words = ["analyze", recorded.etdump, "--etrecord", recorded.etrecord, "--time-scale", "ns"]
    done = etprof(tmp_path, *words, "--out", "tables", "--full")
    assert done.exit_code == 0, done.stderr
    table = next((tmp_path / "tables").glob("*_ops_stats.csv")).read_text()
    assert "model.py:" in table
    assert "model.py:24" in table or "portable" in recorded.pte.name, "of the delegate's own"


def test_of_methods_alike_the_user_says_which_ran(recorded: Recorded) -> None:
    """Two methods of one shape, as prefill and decode may be, ask for --method."""

    def describe(calls: Mapping[int, str]) -> DelegationReport:
        found = describe_etrecord(recorded.etrecord, calls)
        (method,) = found.methods.values()
        return found.model_copy(update={"methods": {"prefill": method, "decode": method}})

    def load(method: str | None) -> Run:
        told = ClockOptions(
            time_scale="ns", etrecord=recorded.etrecord, describe=describe, method=method
        )
        return load_bare_etdump(recorded.etdump, told)

    with pytest.raises(UsageError, match=r"prefill, decode.*--method NAME"):
        load(None)
    with pytest.raises(UsageError, match=r"--method forward: .* has prefill, decode"):
        load("forward")
    assert any("method decode" in note for note in load("decode").notes)


def test_the_command_takes_a_method_of_an_etrecord_alone(
    recorded: Recorded, tmp_path: Path
) -> None:
    words = ["analyze", recorded.etdump, "--time-scale", "ns", "--method", "forward"]
    done = etprof(tmp_path, *words)
    assert done.exit_code == 2
    assert "--method is of an ETRecord" in done.stderr
    done = etprof(tmp_path, *words, "--etrecord", recorded.etrecord)
    assert done.exit_code == 0, done.stderr
    # Where a command is longer than a line, it goes on behind a backslash, at any of its words.
    printed = done.stdout.replace(" \\\n", " ")
    assert "--method forward" in printed, "the next command is of the same method"


def test_an_etrecord_of_another_program_is_told(
    recorded: Recorded, exports: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = exports.get(ExportRequest("transformer_encoder", "fp32"))
    alone = tmp_path / "other.etrecord"
    shutil.copy(other.etrecord, alone)
    words = ["analyze", str(recorded.etdump), "--time-scale", "ns", "--etrecord", str(alone)]
    assert main(words) == 4
    error = capsys.readouterr().err
    assert f"{alone} does not belong to {recorded.etdump}" in error
    assert "give --etrecord the file" in error
    with pytest.raises(InputFileError, match="does not belong to"):
        describe_program(recorded.pte, alone)


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ETRECORD_V0", b"")
        archive.writestr("debug_handle_map", b" " * 2**26)


def wrong_types(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("ETRECORD_V0", "edge_dialect_exported_program/forward"):
            archive.writestr(name, b'["<script>", 1]')
        archive.writestr("debug_handle_map", b'{"forward": "x"}')


HOSTILE: dict[str, Callable[[Path], object]] = {
    "bomb": bomb,
    "wrong types": wrong_types,
    "no zip": lambda path: path.write_bytes(b"no zip at all" * 9),
    "nothing": lambda path: path.write_bytes(b""),
    "pickle": lambda path: path.write_bytes(b"cos\nsystem\n(S'touch ran'\ntR."),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_etrecord_is_named_and_not_run(
    recorded: Recorded, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stranger.etrecord"
    HOSTILE[kind](path)
    words = ["analyze", str(recorded.etdump), "--time-scale", "ns", "--etrecord", str(path)]
    assert main(words) == 4
    error = capsys.readouterr().err
    assert error.startswith(f"etprof: cannot read {path}: ")
    assert "Traceback" not in error
    assert not Path("ran").exists()
