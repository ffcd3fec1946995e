"""A config is checked as a whole: every problem at once, each with its field and a suggestion."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from etprof.base import files
from etprof.base.cpu_list import parse_cpus
from etprof.base.errors import UsageError
from etprof.cli import main
from etprof.config import Config, load_config, parse_config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def good(tmp_path: Path) -> dict[str, Any]:
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    return {"model": str(model), "output_root": "out", "experiments": [{"name": "a"}]}


def problems(document: dict[str, Any]) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse_config(json.dumps(document), "c.json")
    first, *rest = str(caught.value).splitlines()
    assert first == "c.json is not a valid config:"
    return [line.removeprefix("  ") for line in rest]


def test_the_least_config(good: dict[str, Any]) -> None:
    config = parse_config(json.dumps(good), "c.json")
    (experiment,) = config.experiments
    assert (experiment.iterations, experiment.threads, experiment.sme) == (10, (1,), "auto")
    assert config.measurement.blocks == 12


def test_both_spellings_of_the_seeds_are_read(good: dict[str, Any]) -> None:
    good["experiments"] = [{"name": "a", "num_runs": 7, "num_threads": 4, "mode": "xnntrace"}]
    (experiment,) = parse_config(json.dumps(good), "c.json").experiments
    assert (experiment.iterations, experiment.threads) == (7, (4,))
    assert experiment.mode == "kernels"


def test_every_problem_is_listed_at_once(good: dict[str, Any]) -> None:
    document = {
        "model": "REPLACE_WITH_MODEL.pte",
        "output_root": "x",
        "experimentz": [],
        "experiments": [
            {"name": "a b", "num_thread": 1},
            {"name": "ok", "num_runs": -1, "cpu_affinity": "0-x"},
        ],
        "analysis": {"compare_pairs": [{"baseline": "ok", "candidat": "on"}]},
    }
    assert problems(document) == [
        "model: 'REPLACE_WITH_MODEL.pte' is a placeholder; fill it in",
        (
            "experiments.0.name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9_.+-]*$'"
            " (got 'a b')"
        ),
        "experiments.0.num_thread: unknown field; did you mean 'threads'?",
        "experiments.1.num_runs: Input should be greater than 0 (got -1)",
        (
            "experiments.1.cpu_affinity: '0-x' is not a list of CPUs; "
            'write "0-3,6", or a mask "0xf0" (got \'0-x\')'
        ),
        "analysis.compare_pairs.0.candidate: required but not given",
        "analysis.compare_pairs.0.candidat: unknown field; did you mean 'candidate'?",
        "experimentz: unknown field; did you mean 'experiments'?",
    ]


def test_as_many_problems_as_a_file_holds_are_told_soon(good: dict[str, Any]) -> None:
    """Each was left out by a copy of all, and compared with all others: minutes for this one."""
    good |= {f"x{at}": None for at in range(30_000)}
    started = time.process_time()
    with pytest.raises(UsageError, match=r"and \d{2},\d{3} more"):
        parse_config(json.dumps(good), "c.json")
    assert time.process_time() - started < 6


def test_a_misspelt_field_hides_no_other_problem(good: dict[str, Any]) -> None:
    """Names that fit nothing and missing files were told after the first list was mended only."""
    document = good | {
        "model": "nowhere.pte",
        "experiments": [{"name": "a", "runns": 2}, {"name": "a", "sme_vector_bits": 512}],
        "measurement": {"blocks": 0, "instructions": True},
        "analysis": {"compare_pairs": [{"baseline": "a", "candidate": "b"}]},
    }
    assert problems(document) == [
        "experiments.0.runns: unknown field; did you mean 'runs'?",
        "measurement.blocks: Input should be greater than 0 (got 0)",
        "experiments.1.sme_vector_bits is for emulator, not for local; leave it out",
        "measurement.instructions is for emulator, not for local; leave it out",
        "experiments: two are called 'a'",
        "analysis.compare_pairs.0.candidate: no experiment 'b'",
        "model: nowhere.pte does not exist",
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Whether the emulator was meant is not known, so the vector length is not judged.
        ({"target": "emulatr", "experiments": [{"name": "a", "sme_vector_bits": 512}]},
         ["target.kind: no such target; did you mean 'emulator'?"]),
        # Neither is a pair that names the experiment.
        ({"experiments": [{"name": "a b"}, {"name": "c"}],
          "analysis": {"compare_pairs": [{"baseline": "a b", "candidate": "c"}]}},
         ["experiments.0.name: String should match pattern"]),
        # Without its wrong tokenizer a prompt would lack one.
        ({"generation": {"new_tokens": 2, "prompt": "a", "tokenizer": 1}, "model": "no.pte"},
         ["generation.tokenizer: ", "model: no.pte does not exist"]),
        ({"x": 1, "experiments": [{"name": "a", "y": [{}]}] * 2}, ["experiments.0.y: unknown",
         "experiments.1.y: unknown", "x: unknown field", "experiments: two are called 'a'"]),
        ({"measurement": []}, ["measurement: "]),
        ({"experiments": ["a", 3]}, ["experiments.0: ", "experiments.1: "]),
    ],
)  # fmt: skip
def test_nothing_is_told_that_only_follows_from_another_problem(
    good: dict[str, Any], changes: dict[str, Any], expected: list[str]
) -> None:
    lines = problems(good | changes)
    assert len(lines) == len(expected), lines
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"experiments": []}, "experiments: Tuple should have at least 1 item"),
        (
            {"experiments": [{"name": "a"}, {"name": "a"}]},
            "experiments: two are called 'a'",
        ),
        (
            {"analysis": {"compare_pairs": [{"baseline": "a", "candidate": "ab"}]}},
            "analysis.compare_pairs.0.candidate: no experiment 'ab'; did you mean 'a'?",
        ),
        ({"model": "nowhere.pte"}, "model: nowhere.pte does not exist"),
        (
            {"experiments": [{"name": "a", "runner_path": "no/runner"}]},
            "experiments.0.runner_path: no/runner does not exist",
        ),
        (
            {"experiments": [{"name": "a", "sme": "sme3"}]},
            "experiments.0.sme: Input should be 'sme2', 'sme1', 'auto' or 'off' (got 'sme3')",
        ),
        (
            {"target": "ios"},
            "target.kind: no such target; known: local, linux, android, mac, emulator",
        ),
        (
            {"measurement": {"block": 3}},
            "measurement.block: unknown field; did you mean 'blocks'?",
        ),
    ],
)
def test_problems(good: dict[str, Any], changes: dict[str, Any], expected: str) -> None:
    (line,) = problems(good | changes)
    assert line.startswith(expected)


HUGE = 10**49


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"measurement": {"blocks": 100_001}}, "measurement.blocks"),
        ({"measurement": {"etdump_runs": 10**10}}, "measurement.etdump_runs"),
        ({"measurement": {"min_seconds": 1e308}}, "measurement.min_seconds"),
        ({"measurement": {"timeout_s": 1e10}}, "measurement.timeout_s"),
        ({"measurement": {"cool_down_s": 1e10}}, "measurement.cool_down_s"),
        ({"measurement": {"max_wait_s": 1e10}}, "measurement.max_wait_s"),
        ({"measurement": {"budget_s": 1e10}}, "measurement.budget_s"),
        ({"experiments": [{"name": "a", "runs": 10**10}]}, "experiments.0.runs"),
        ({"experiments": [{"name": "a", "warmup": 10**10}]}, "experiments.0.warmup"),
        ({"experiments": [{"name": "a", "threads": 1025}]}, "experiments.0.threads.0"),
        ({"experiments": [{"name": "a", "cpu_affinity": [10**4]}]}, "experiments.0.cpu_affinity.0"),
        ({"experiments": [{"name": "a", "cpu_affinity": "0-9999," * 10**4}]},
         "experiments.0.cpu_affinity"),
        ({"experiments": [{"name": "a" * 81}]}, "experiments.0.name"),
        ({"experiments": [{"name": "a", "sme": []}]}, "experiments.0.sme"),
        ({"experiments": [{"name": "a", "mode": {}}]}, "experiments.0.mode"),
        ({"experiments": [{"name": f"a{n}"} for n in range(1001)]}, "experiments"),
        ({"target": {"kind": "android", "reconnect_s": 1e10}}, "target.reconnect_s"),
        ({"generation": {"new_tokens": 10**10, "prompt": "a", "tokenizer": "t"}},
         "generation.new_tokens"),
        ({"measurement": {"blocks": 99_999}, "experiments": [{"name": "a", "threads": [1, 2]}]},
         "measurement.blocks"),
    ],
)  # fmt: skip
def test_what_would_never_end_is_refused_by_its_field(
    good: dict[str, Any], changes: dict[str, Any], field: str
) -> None:
    """S5: `blocks: 10^49` looped without end under --dry-run, `"sme": []` was a traceback."""
    (line,) = problems(good | changes)
    assert line.startswith(f"{field}: ")
    assert len(line) < 300


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"measurement": {"blocks": HUGE}}, "measurement.blocks"),
        ({"measurement": {"seed": -HUGE}}, "measurement.seed"),
        ({"experiments": [{"name": "a", "threads": [1, HUGE]}]}, r"experiments\.0\.threads\.1"),
    ],
)
def test_a_number_that_nothing_holds_is_refused_by_its_field(
    good: dict[str, Any], changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(UsageError, match=rf"^c.json is not valid JSON: {field}: the number is too"):
        parse_config(json.dumps(good | changes), "c.json")


def test_no_more_problems_are_listed_than_anyone_reads(good: dict[str, Any]) -> None:
    lines = problems(good | {f"field{n}": 1 for n in range(5000)})
    assert (len(lines), lines[-1]) == (41, "and 4,960 more")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "c.json is not valid JSON: EOF while parsing a value at line 1 column 0"),
        ('{"model": 1, "model": 2}', "the field 'model' stands twice in one object"),
        ("[1, 2]", "must be a JSON object: {…}"),
    ],
)
def test_text_that_is_no_config(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(text, "c.json")
    assert message in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*no.json: No such file or directory"):
        load_config(tmp_path / "no.json")
    (tmp_path / "latin.json").write_bytes(b'{"model": "\xe9"}')
    with pytest.raises(UsageError, match=r"latin.json is not UTF-8 text \(byte 11\)"):
        load_config(tmp_path / "latin.json")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0", (0,)), ("0-3", (0, 1, 2, 3)), ("4-5,7", (4, 5, 7)), ("0xf0", (4, 5, 6, 7))],
)
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert parse_cpus(text) == cpus


@pytest.mark.parametrize(
    ("text", "reason"),
    [("4-2", "the range 4-2 ends before it begins; write 2-4"), ("0x0", "the mask 0x0 has no CPU")],
)
def test_a_list_without_a_cpu_is_refused(text: str, reason: str) -> None:
    """It was read as no list at all, as if nobody had asked for CPUs."""
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_cpus(text)


def shipped(folder: str) -> list[Path]:
    files = sorted((ROOT / "configs" / folder).glob("*.json"))
    return [path for path in files if not path.name.startswith("matrix_")]


@pytest.mark.parametrize(
    "path", [*shipped("templates"), *shipped("examples")], ids=lambda p: p.name
)
def test_shipped_configs_lack_nothing_but_files(path: Path, good: dict[str, Any]) -> None:
    document = json.loads(path.read_text())
    document["model"] = good["model"]
    document["output_root"] = "out"
    parse_config(json.dumps(document), path.name)


def test_an_example_counts_microkernels_on_a_phone() -> None:
    """R114: no shipped config named a runner that counts, and on a phone none comes along."""
    configs = [json.loads(path.read_text()) for path in shipped("examples")]
    targets = [each["target"] for each in configs if isinstance(each["target"], dict)]
    counting = [each for each in targets if each["kind"] == "android" and "trace_preset" in each]
    assert [each["trace_preset"] for each in counting] == ["android-sme2-trace"]
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    assert "android-sme2-trace" in {each["name"] for each in presets}


def test_templates_say_what_to_fill_in() -> None:
    for path in shipped("templates"):
        with pytest.raises(UsageError, match="is a placeholder; fill it in"):
            load_config(path)


def test_the_schema_describes_every_field() -> None:
    schema = json.dumps(Config.model_json_schema())
    for field in ("num_runs", "runs", "threads", "compare_pairs", "max_start_temperature_c"):
        assert field in schema or field == "num_runs"


def test_paths_are_relative_to_the_config(
    good: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U2: they followed the working folder, so a config worked from one folder only."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "forks.sh").touch()
    files = {"model": "m.pte", "output_root": "out", "inputs": ["m.pte"]}
    programs = {"b": {"model": "m.pte", "inputs": ["m.pte"]}}
    ways = [{"name": "a", "runner_path": "forks.sh"}, {"name": "c", "program": "b"}]
    path = tmp_path / "c.json"
    path.write_text(json.dumps(good | files | {"programs": programs, "experiments": ways}))
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config(Path("../c.json"))
    assert config.model == config.inputs[0] == Path("../m.pte")
    assert config.programs["b"].model == Path("../m.pte")
    assert config.experiments[0].runner == Path("../forks.sh")
    assert config.folder == Path("../out")


def test_a_preset_is_of_the_checkout_that_the_config_is_in(
    good: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R125: presets were looked for below the working folder alone."""
    runner = tmp_path / "build" / "host" / "cpp" / "runner" / "etprof-runner"
    (tmp_path / "configs" / "mine").mkdir(parents=True)
    runner.parent.mkdir(parents=True)
    runner.touch()
    path = tmp_path / "configs" / "mine" / "c.json"
    target = {"kind": "android", "trace_preset": "host"}
    ways = [{"name": "a", "preset": "host"}, {"name": "b", "preset": "not-built"}]
    program = tmp_path / "m.pte"
    program.touch()
    given = {"model": str(program), "target": target, "experiments": ways, "analysis": {}}
    path.write_text(json.dumps(good | given))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config(Path("../configs/mine/c.json"))
    first, second = config.experiments
    assert (first.runner, config.target.trace_runner) == (runner, runner)
    # AND one that is not built there is still sought in the working folder
    assert (second.runner, second.preset) == (None, "not-built")


def test_a_config_may_name_models(good: dict[str, Any], tmp_path: Path) -> None:
    """U2: the example needed a program that no command had made."""
    source = tmp_path / "mine.py"
    source.touch()
    path = tmp_path / "c.json"
    programs = {"b": {"model": "mine.py:Net:int8"}, "c": {"model": "m.pte"}}
    ways = [{"name": "a"}, {"name": "b", "program": "b"}, {"name": "c", "program": "c"}]
    document = good | {"model": "toy_cnn:fp32", "programs": programs, "experiments": ways}
    del document["output_root"]
    path.write_text(json.dumps(document))
    config = load_config(path)
    assert config.models_to_export() == ["toy_cnn:fp32", f"{source}:Net:int8"]
    assert config.folder == Path("out_toy_cnn/runs/linux")


def test_a_model_that_nobody_knows_is_a_problem(good: dict[str, Any]) -> None:
    (problem,) = problems(good | {"model": "toy_cn:int8"})
    assert problem.startswith("model: no model is called 'toy_cn'; did you mean 'toy_cnn'?")


def test_editors_may_be_told_the_schema(good: dict[str, Any]) -> None:
    """U5: `"$schema"` was refused."""
    config = parse_config(json.dumps({"$schema": "etprof.schema.json", **good}), "c.json")
    assert "$schema" in Config.model_json_schema()["properties"]
    assert "$schema" not in config.model_dump_json(by_alias=True)


def test_what_is_checked_is_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D20: a config was read twice, so the text in the manifest might be another."""
    path, model = tmp_path / "c.json", tmp_path / "m.pte"
    model.write_bytes(b"program")
    document = {"model": str(model), "output_root": "first", "experiments": [{"name": "a"}]}
    path.write_text(json.dumps(document))
    read = files.read_input

    def reads_and_changes(*given: Any, **more: Any) -> bytes:  # noqa: ANN401 - as it takes them
        data = read(*given, **more)
        path.write_text(json.dumps(document | {"output_root": "second"}))
        return data

    kept: list[object] = []

    def measures(config: Config, *_: object, identity: Any, **__: object) -> None:  # noqa: ANN401
        kept.extend([str(config.output_root), identity["content"]["output_root"]])

    monkeypatch.setattr("etprof.config.read_input", reads_and_changes)
    monkeypatch.setattr("etprof.measuring.configured.measure_config", measures)
    monkeypatch.setattr("etprof.cli.run.report_run", lambda *_, **__: 0)
    monkeypatch.setattr("etprof.measuring.plan.configured_target", lambda _: None)
    assert main(["run", str(path)]) == 0
    assert kept == [str(tmp_path / "first")] * 2


def test_a_config_of_a_model_has_no_placeholder_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U2: `config init --model FILE.pte` left its output for someone to fill in."""
    (tmp_path / "net.pte").write_bytes(b"")
    config = tmp_path / "c.json"
    words = ["config", "init", "--template", "emulator", "--model", str(tmp_path / "net.pte")]
    assert main([*words, "--out", str(config)]) == 0
    assert "REPLACE_WITH" not in config.read_text() + capsys.readouterr().out
    assert str(load_config(config).output_root).endswith("out_net/runs/emulator")


@pytest.mark.parametrize(
    ("model", "folder"),
    [
        ("net.py:Net", "out_Net"),
        ("net.py:Net:fp16", "out_Net"),
        ("n_fp16.pte", "out_Mine"),
        ("toy_cnn", "out_toy_cnn"),
        ("toy_cnn:int8", "out_toy_cnn"),
    ],
)
def test_a_config_keeps_runs_where_profile_does(
    model: str,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One model had two folders: `profile` names them after the model, the config after the file."""
    monkeypatch.chdir(tmp_path)
    export = {"model": "Mine", "backend": "xnnpack", "precision": "fp16"}
    Path("n_fp16.pte").write_bytes(b"program")
    Path("n_fp16.pte.json").write_text(json.dumps(export))
    assert main(["config", "init", "--template", "linux", "--model", model]) == 0
    assert json.loads(capsys.readouterr().out)["output_root"] == f"{folder}/runs/linux"


def test_a_valid_config_is_told_with_its_experiments_and_ends_well(
    good: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(good | {"experiments": [{"name": "a"}, {"name": "b"}]}))
    assert main(["config", "check", str(path)]) == 0
    assert f"{path} is valid: 2 experiments (a, b)" in " ".join(capsys.readouterr().out.split())
    assert main(["config", "check", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["config"], document["experiments"]) == (str(path), ["a", "b"])
    assert main(["config", "schema"]) == 0
    assert "experiments" in json.loads(capsys.readouterr().out)["properties"]
    assert main(["config", "init", "--template", "linux", "--model", "x/n.pte"]) == 0
    filled = json.loads(capsys.readouterr().out)
    assert (filled["model"], filled["output_root"].startswith("out_n")) == ("x/n.pte", True)
