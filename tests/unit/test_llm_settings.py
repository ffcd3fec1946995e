"""`etprof export-llm`: what is wrong in a YAML is said with its field, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest

from etprof.base import process
from etprof.base.errors import EtprofError, UsageError
from etprof.etrecord import program
from etprof.export_llm import exporting, planning, schema
from etprof.export_llm.planning import LlmRequest, plan_export
from etprof.export_llm.uses import USES
from tests.world.host import etprof

GOOD = "base:\n  model_class: llama3\n  params: p.json\n"


def plan(folder: Path, text: str, **more: object) -> planning.LlmPlan:
    (folder / "c.yaml").write_text(text)
    if not (folder / "p.json").exists():
        (folder / "p.json").write_text('{"dim": 64, "n_layers": 1}')
    return plan_export(LlmRequest(folder / "c.yaml", **more))  # type: ignore[arg-type]


REFUSED = {
    "": "is empty",
    "- base": "line 1: the file: must be a group of settings, not a list",
    "base:\n  parms: p.json": "line 2: base.parms: is not known to ExecuTorch; did you mean 'params'?",
    "bose: {}": "line 1: bose: is not known to ExecuTorch; did you mean 'base'?",
    "'<script>': 1": "line 1: <script>: is not known to ExecuTorch; known here: backend, base",
    "defaults: [x]": "line 1: defaults: is not known to ExecuTorch",
    "base: [1]": "line 1: base: must be a group of settings, not a list",
    "base: {params: [a]}": "line 1: base.params: must be text, not a list",
    "base: {params: {a: b}}": "line 1: base.params: must be text, not a group of settings",
    "base: {params: 5}": "line 1: base.params: must be text, not '5'",
    "base: {model_class: lama3}": "base.model_class: must be one of stories110m, llama2",
    "model: {use_kv_cache: maybe}": "model.use_kv_cache: must be true or false, not 'maybe'",
    "model: {local_global_attention: 4}": "local_global_attention: must be a list, not '4'",
    "export: {max_seq_length: 1.5}": "export.max_seq_length: must be a whole number, not '1.5'",
    "export: {max_seq_length: 999}": "export: max_context_length of 128 cannot be shorter",
    "quantization: {qmode: 3w}": "quantization: Got qmode 3w",
    "base: {params: '${oc.env:HOME}'}": "base.params: values stand for themselves",
    "base: &x {params: p.json}\nmodel: *x": "line 1: model: is an alias",
    "base: {params: p.json, params: q.json}": "base.params: appears twice",
    "base: !!python/object/apply:os.system [ls]": "must be a group of settings, not a list",
    "multimethod: {methods: [{}]}": "multimethod.methods.0.method_name: is missing",
    "\tbase: 1": "is no YAML",
    "[" * 5000: "is no YAML",
    "base: {model_class: llama3}": "base.params: is missing",
    "base: {params: none.json}": "base.params: none.json does not exist",
    "base: {params: .}": "base.params: .: it is a directory",
    "base: {params: p.json, checkpoint: w.pth}": "base.checkpoint: w.pth does not exist",
    "base: {params: p.json, tokenizer_path: t}": "base.tokenizer_path: t does not exist",
    "base: {params: p.json, lora_config: {adapter_checkpoint: a.pt}}":
        "base.lora_config.adapter_checkpoint: a.pt does not exist",
    "base: {params: p.json, metadata: '[1]'}": "base.metadata: must be the text of a JSON object",
    f"{GOOD}backend: {{coreml: {{enabled: true}}}}": "backend.coreml: etprof measures xnnpack",
    f"{GOOD}export: {{output_name: a.pte}}": "export.output_name: is not for etprof: -o names",
    f"{GOOD}export: {{so_library: p.json}}":
        "export.so_library: p.json is a native library that ExecuTorch would load, so its code would",
    f"{GOOD}backend: {{vgf: {{compiler_flags: [-o, x]}}}}": "backend.vgf.compiler_flags: is not for",
    f"{GOOD}backend: {{qnn: {{optimized_rotation_path: x}}}}": "optimized_rotation_path: is not for",
    f"{GOOD}quantization: {{calibration_tasks: [a, ./b.yaml]}}":
        "quantization.calibration_tasks: './b.yaml' is not the name of an lm_eval task",
}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), REFUSED.items(), ids=lambda text: text[:40])
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(tmp_path, text)
    assert told in str(refused.value)
    assert "c.yaml" in str(refused.value)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ("[1]", "is no JSON object"),
        ('{"dims": 64}', "dims is not a parameter of ExecuTorch's networks; did you mean 'dim'?"),
        ('{"use_kv_cache": true}', "use_kv_cache is set by model.use_kv_cache"),
        ("{", "Invalid JSON"),
    ],
)
def test_what_is_wrong_with_the_networks_sizes_is_named(
    tmp_path: Path, params: str, told: str
) -> None:
    (tmp_path / "p.json").write_text(params)
    with pytest.raises(UsageError) as refused:
        plan(tmp_path, GOOD)
    assert told in str(refused.value)
    assert "p.json" in str(refused.value)


def test_a_plan_has_all_that_was_asked(tmp_path: Path) -> None:
    text = (
        f"{GOOD}model: {{dtype_override: fp16}}\nquantization: {{qmode: 8da4w, group_size: 32}}\n"
    )
    found = plan(tmp_path, text, outdir=tmp_path)
    assert (found.weights, found.precision, found.backend) == (
        "random",
        "8da4w_g32_fp16",
        "portable",
    )
    assert found.files.pte.name == "c_portable_8da4w_g32_fp16.pte"
    told = found.record()
    assert told["settings"]["quantization"] == {"qmode": "8da4w", "group_size": 32}
    assert set(told["files"]) == {"base.params"}
    # A file that is not whole has another hash.
    before = told["config"]["sha256"]
    assert plan(tmp_path, f"{text}\n").record()["config"]["sha256"] != before


def test_relative_files_are_beside_the_yaml_and_absolute_for_executorch(tmp_path: Path) -> None:
    found = plan(tmp_path, GOOD)
    config = exporting._config(found, tmp_path)
    assert config["base"]["params"] == str(tmp_path / "p.json")
    assert config["debug"] == {"generate_etrecord": True}
    assert found.settings.document["base"]["params"] == "p.json"


def test_nothing_is_downloaded_without_being_told(tmp_path: Path) -> None:
    qwen = GOOD.replace("llama3", "qwen3_0_6b")
    assert plan(tmp_path, qwen).weights == "random"
    assert plan(tmp_path, qwen, download=True).weights == "downloaded"
    with pytest.raises(UsageError, match="ExecuTorch downloads no weights of llama3"):
        plan(tmp_path, GOOD, download=True)


FAKE = """
import os, sys, pathlib
print("hello from the export", os.environ.get("HF_HUB_OFFLINE"), flush=True)
{body}
"""


def run_fake(
    folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, **more: object
) -> EtprofError:
    """Exports with another program in ExecuTorch's place; returns how that ends."""
    found = plan(folder, GOOD, out=folder / "m.pte", **more)
    script = folder / "fake.py"
    script.write_text(FAKE.format(body=body))
    real = process.run_command

    def run(words: list[str], **settings: object) -> object:
        start = words.index("-m")
        return real([*words[:start], script], **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(exporting, "run_command", run)
    with pytest.raises(EtprofError) as refused:
        exporting.export_llm(found)
    return refused.value


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ModuleNotFoundError(\"No module named 'torchtune'\")",
         "failed with exit code 1: ModuleNotFoundError: No module named 'torchtune'; install what"),
        ("os.kill(os.getpid(), 9)",
         "was ended by signal 9: hello from the export 1; the system may have lacked memory"),
        ("os.kill(os.getpid(), 15)",
         "was ended by signal 15: hello from the export 1; change the setting that it speaks of"),
        ("print('MemoryError'); sys.stdout.flush(); os.kill(os.getpid(), 9)",
         "was ended by signal 9: MemoryError; export on a machine with more memory"),
        ("print('GLOBAL evil.run was not', flush=True); raise OSError('Weights only load failed')",
         "Weights only load failed, for the file's pickle names evil.run; base.checkpoint, or"),
        ("", "ended without a program: hello from the export 1; change the setting that it"),
        ("print('\\x1b[2J' + 'x' * 9999); sys.exit(3)", "failed with exit code 3: \\x1b[2Jxxx"),
    ],
)  # fmt: skip
def test_a_failure_says_why_and_keeps_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, told: str
) -> None:
    error = run_fake(tmp_path, monkeypatch, body)
    assert error.exit_code == 6
    assert told in str(error)
    assert len(str(error)) < 1500
    assert "hello from the export 1" in (tmp_path / "m.pte.log").read_text()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"c.yaml", "p.json", "fake.py", "m.pte.log"}


def method(name: str, *values: object, operators: tuple[str, ...] = ()) -> SimpleNamespace:
    """A method as ExecuTorch decodes it: one with operators computes, others give constants."""
    return SimpleNamespace(
        name=name,
        chains=[SimpleNamespace(instructions=list(operators))],
        operators=[SimpleNamespace(name=each) for each in operators],
        values=[SimpleNamespace(val=value) for value in values],
        outputs=[*range(len(values))],
    )


def test_a_program_is_described_as_far_as_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, text = SimpleNamespace(int_val=7), SimpleNamespace(string_val="x")
    plans = [
        method("forward", operators=("llama::update_cache", "aten::add", "llama::sdpa")),
        method("get_bos_id", number),
        method("get_names", number, text, SimpleNamespace()),
        method("get_nothing"),
    ]
    content = SimpleNamespace(program=SimpleNamespace(execution_plan=plans))
    monkeypatch.setattr(program, "decode_program", lambda _: content)
    script = tmp_path / "fake.py"
    script.write_text("import pathlib, sys; pathlib.Path('model.pte').write_bytes(b'program')")
    real = process.run_command

    def run(words: list[str], **settings: object) -> object:
        return real([sys.executable, script], **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(exporting, "run_command", run)
    files = exporting.export_llm(plan(tmp_path, GOOD, out=tmp_path / "m.pte"))
    manifest = json.loads(files.manifest.read_text())
    assert manifest["options"]["llm"]["constants"] == {
        "get_bos_id": 7, "get_names": [7, "x", None], "get_nothing": [],
    }  # fmt: skip
    assert (manifest["method"], list(manifest["methods"])) == ("forward", ["forward"])
    missing, needs = sorted(manifest["log"])
    assert needs.startswith("no delegation report: debug.generate_etrecord is false")
    assert missing.startswith("it needs llama::sdpa, llama::update_cache, ")


def test_an_export_that_takes_too_long_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = "import signal; sys.stdout.flush(); signal.pause()"
    error = run_fake(tmp_path, monkeypatch, sleeps, timeout_s=1.5)
    assert "did not end within 1.5 s and was stopped; give it more with --timeout" in str(error)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    plan(tmp_path, GOOD)
    before = set(tmp_path.iterdir())
    done = etprof(tmp_path, "export-llm", "c.yaml", "--dry-run", "--json")
    told = json.loads(done.stdout)
    assert told["asked"]["weights"] == "random"
    assert set(tmp_path.iterdir()) == before
    assert "torch" not in told


def test_checking_loads_no_pytorch(tmp_path: Path) -> None:
    from etprof.base.process import run_command

    plan(tmp_path, GOOD)
    code = (
        "import sys; from pathlib import Path; from etprof.export_llm.planning import *; "
        "plan_export(LlmRequest(Path('c.yaml'))); print('torch' in sys.modules)"
    )
    done = run_command([sys.executable, "-c", code], folder=tmp_path, timeout_s=60)
    assert done.stdout == "False\n", done.stderr


def fields_of(kind: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Every field of a class of ExecuTorch's and of those within, with its class."""
    hints = get_type_hints(kind)
    for entry in dataclasses.fields(kind):
        yield kind.__name__.lower(), entry.name
        for part in (hints[entry.name], *get_args(hints[entry.name])):
            if dataclasses.is_dataclass(part):
                yield from fields_of(part)


def test_what_executorch_does_with_each_setting_is_written_down() -> None:
    """S3-1: a field of ExecuTorch's that is new has to be looked at before a YAML may have it."""
    upstream = set(fields_of(schema.declared()))
    ours = {(kind, name) for kind, names in USES.items() for name in names}
    assert upstream - ours == set(), "look at what ExecuTorch does with them, then add them to USES"
    assert ours - upstream == set(), "ExecuTorch has these no more"


def test_a_setting_that_sounds_like_a_file_is_no_plain_value() -> None:
    sounds = ("path", "file", "dir", "library", "checkpoint", "_map", "flags", "tasks", "_config")
    plain = {
        name
        for names in USES.values()
        for name, use in names.items()
        if use.kind == "value" and any(sound in name for sound in sounds)
    }
    # A group of settings, a choice and a text for a backend that cannot be enabled.
    assert plain == {"lora_config", "system_config"}


def test_a_setting_of_a_newer_executorch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3-1."""
    ours = schema.declared()
    export = dataclasses.make_dataclass(
        "ExportConfig", [("plugin", str, "")], bases=(type(ours().export),)
    )
    newer = dataclasses.make_dataclass(
        "LlmConfig",
        [("export", export, dataclasses.field(default_factory=export))],
        bases=(ours,),
    )
    monkeypatch.setattr(schema, "declared", lambda: newer)
    with pytest.raises(UsageError, match=r"line 4: export\.plugin: etprof does not know what this"):
        plan(tmp_path, f"{GOOD}export: {{plugin: a.py}}\n")


def test_another_file_than_the_library_that_the_command_line_names_is_refused(
    tmp_path: Path,
) -> None:
    """S3-1."""
    for name in ("a.so", "b.so"):
        (tmp_path / name).write_text(name)
    text = f"{GOOD}export: {{so_library: a.so}}\n"
    with pytest.raises(UsageError, match=r"--so-library .*/a\.so"):
        plan(tmp_path, text, so_library=tmp_path / "b.so")
    same = plan(tmp_path, text, so_library=tmp_path / "a.so")
    assert set(same.record()["files"]) == {"base.params", "export.so_library"}
    alone = plan(tmp_path, GOOD, so_library=tmp_path / "a.so")
    config = exporting._config(alone, tmp_path)
    assert config["export"]["so_library"] == str(tmp_path / "a.so")
    with pytest.raises(UsageError, match=r"--so-library .* is not a file"):
        plan(tmp_path, GOOD, so_library=tmp_path)


def test_a_dry_run_says_what_each_file_is_read_as(tmp_path: Path) -> None:
    """S3-1."""
    for name in ("w.pth", "t.json", "a.safetensors", "c.json"):
        (tmp_path / name).write_text("{}")
    adapter = "{adapter_checkpoint: a.safetensors, adapter_config: c.json}"
    base = "  checkpoint: w.pth\n  tokenizer_path: t.json\n"
    methods = f"multimethod: {{methods: [{{method_name: a, lora_config: {adapter}}}]}}\n"
    plan(tmp_path, f"{GOOD}{base}{methods}")
    reads = json.loads(etprof(tmp_path, "export-llm", "c.yaml", "--dry-run", "--json").stdout)[
        "reads"
    ]
    lora = "multimethod.methods.0.lora_config"
    assert {place: told["read_as"].partition(" ")[0] for place, told in reads.items()} == {
        "base.params": "JSON",
        "base.checkpoint": "tensors",
        "base.tokenizer_path": "a",
        f"{lora}.adapter_checkpoint": "tensors",
        f"{lora}.adapter_config": "JSON",
    }
    shown = etprof(tmp_path, "export-llm", "c.yaml", "--dry-run").stdout
    assert f"Reads base.checkpoint: {tmp_path}/w.pth as tensors" in shown


def test_what_cannot_be_downloaded_is_said(tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"base\.checkpoint: is given, so --download has nothing"):
        plan(tmp_path, f"{GOOD}  checkpoint: w.pth\n", download=True)
