"""A matrix is checked as a whole, and expands to every combination, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof.base.errors import EtprofError, UsageError
from etprof.bench.combinations import expand
from etprof.bench.matrix import Matrix, load_matrix, parse_matrix
from etprof.bench.session import export_programs
from etprof.config import Config, read_installed

ROOT = Path(__file__).parents[2]
KNOWN = (
    "decoder, edgetam, efficient_sam, mobilenet_v2, mobilenet_v3_small, resnet18, toy_cnn, "
    "transformer_encoder, vit_tiny"
)

GENERATION: dict[str, object] = {"new_tokens": 64, "prompt_tokens": [11, 42, 7]}


def parse(**changes: object) -> Matrix:
    return parse_matrix(json.dumps({"models": ["toy_cnn"], **changes}), "m.json")


def problems(**changes: object) -> list[str]:
    with pytest.raises(UsageError) as caught:
        parse(**changes)
    first, *rest = str(caught.value).splitlines()
    assert first == "m.json is not a valid config:"
    return [line.removeprefix("  ") for line in rest]


def test_the_least_matrix() -> None:
    matrix = parse()
    (unit,), left_out = expand(matrix)
    assert (unit.text, unit.sme, unit.threads) == ("toy_cnn xnnpack fp32 on host", (), (1,))
    assert (left_out, matrix.folder) == ([], Path("out_bench/bench"))


def test_one_value_needs_no_list() -> None:
    matrix = parse(models="toy_cnn", precisions="int8", threads=2, sme="off")
    (unit,), _ = expand(matrix)
    assert (unit.precision, unit.sme, unit.threads) == ("int8", ("off",), (2,))


@pytest.mark.parametrize(
    ("written", "modes"),
    [("all", ()), ([], ()), (["on", "off"], ("sme2", "off")), ([True, False], ("sme2", "off"))],
)
def test_sme_modes_are_written_in_several_ways(written: object, modes: tuple[str, ...]) -> None:
    assert parse(sme=written).sme == modes


def test_every_problem_is_listed_at_once() -> None:
    found = problems(
        models=["toy_cn", {"model": "toy_cnn", "methd": "forward"}],
        precisions=["fp32", "fp33"],
        backends="xnpack",
        device=[],
        sme=["fast"],
        threads=[0],
        measurement={"block": 3},
    )
    assert found == [
        (
            f"models.0.model: no model is called 'toy_cn'; did you mean 'toy_cnn'? known: {KNOWN}; "
            "or give path/to/file.py:Class or FILE.pt2 (got 'toy_cn')"
        ),
        "models.1.methd: unknown field; did you mean 'method'?",
        (
            "precisions.1: unknown precision 'fp33'; did you mean 'fp32'? choose one of fp32, fp16, bf16, int8, "
            "int8_per_tensor, int8_dynamic, 8da4w, 8da4w_channel, 8da4w_b<BLOCK> (got 'fp33')"
        ),
        (
            "backends.0: no such backend; did you mean 'xnnpack'?; known: xnnpack, portable"
            " (got 'xnpack')"
        ),
        "sme.0: Input should be 'sme2', 'sme1', 'auto' or 'off' (got 'fast')",
        "threads.0: Input should be greater than 0 (got 0)",
        "measurement.block: unknown field; did you mean 'blocks'?",
        "device: unknown field; did you mean 'devices'?",
    ]


def test_names_that_would_clash_are_refused(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("")
    phones = [
        {"name": "a", "kind": "android", "serial": "1"},
        {"name": "b", "kind": "android", "serial": "1"},
        {"name": "b", "kind": "android"},
    ]
    found = problems(
        models=["toy_cnn", "toy_cnn", f"{own}:toy_cnn"],
        threads=[1, 2, 1],
        devices=phones,
        exclude=[{"model": "toy", "device": "a"}],
    )
    assert found == [
        "models: 'toy_cnn' appears twice",
        "models: two different models are called 'toy_cnn'; measure them in two matrices",
        "devices: 'b' appears twice",
        "threads: 1 appears twice",
        "devices.0: 1 appears twice; one entry per device",
        "devices.1: 1 appears twice; one entry per device",
        "devices.2: 'b' needs serial or connect: there are several",
        "exclude.0.model: 'toy' is not in the matrix; did you mean 'toy_cnn'?",
    ]


def test_files_that_are_missing_are_named() -> None:
    assert problems(
        models=[
            {"model": "toy_cnn", "weights": "none.pt"},
            {"model": "decoder", "generation": {**GENERATION, "tokenizer": "none.json"}},
        ],
        devices=[
            {"name": "a", "kind": "android", "runner_path": "none", "trace_runner": "none"},
        ],
    ) == [
        "models.0.weights: none.pt does not exist",
        "models.1.generation.tokenizer: none.json does not exist",
        "devices.0.runner_path: none does not exist",
        "devices.0.trace_runner: none does not exist",
    ]


def test_a_matrix_that_is_not_there_says_how_to_get_one(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    with pytest.raises(UsageError) as caught:
        load_matrix(path)
    assert str(caught.value) == (
        f"cannot read {path}: No such file or directory; `etprof bench --init` writes one"
    )


def test_every_combination_is_there_once() -> None:
    matrix = parse(
        models=["toy_cnn", "resnet18"],
        precisions=["fp32", "fp16", "int8"],
        backends=["xnnpack", "portable"],
        devices=[{"name": "a"}, {"name": "b", "kind": "emulator"}],
    )
    units, left_out = expand(matrix)
    assert len({unit.text for unit in units}) == len(units) == 2 * 5 * 2
    assert len({unit.program for unit in units}) == 2 * 5
    assert [(each.text, each.reason) for each in left_out][:1] == [
        (
            "toy_cnn portable int8 on a",
            "precision int8 needs backend xnnpack: portable computes in float",
        )
    ]
    assert len(left_out) == 4


def test_exclusions_agree_in_all_they_give() -> None:
    matrix = parse(
        models=["toy_cnn", "resnet18"],
        precisions=["fp32", "fp16"],
        exclude=[{"model": "resnet18", "precision": "fp16"}, {}],
    )
    units, left_out = expand(matrix)
    assert [unit.text for unit in units] == [
        "toy_cnn xnnpack fp32 on host",
        "toy_cnn xnnpack fp16 on host",
        "resnet18 xnnpack fp32 on host",
    ]
    assert [(e.text, e.reason) for e in left_out] == [("resnet18 xnnpack fp16 on host", "excluded")]


def test_methods_of_one_model_share_its_program() -> None:
    models = [{"model": "decoder", "method": name} for name in ("prefill", "decode")]
    units, _ = expand(parse(models=models))
    assert [unit.label for unit in units] == [
        "decoder_prefill_xnnpack_fp32",
        "decoder_decode_xnnpack_fp32",
    ]
    assert len({unit.program for unit in units}) == 1


def test_a_generation_is_told_apart_and_repeated_less(tmp_path: Path) -> None:
    generating = {"model": "decoder", "generation": GENERATION}
    models = ["toy_cnn", {"model": "decoder", "method": "decode"}, generating]
    units, _ = expand(parse(models=models))
    assert [unit.label for unit in units] == [
        "toy_cnn_xnnpack_fp32",
        "decoder_decode_xnnpack_fp32",
        "decoder_generate64_xnnpack_fp32",
    ]
    configs = [unit.config(tmp_path / "m.pte", tmp_path / "run", ["off"]) for unit in units]
    assert [(c.experiments[0].iterations, c.experiments[0].warmup) for c in configs] == [
        (20, 10),
        (20, 10),
        (3, 1),
    ]
    again = Config.model_validate_json(configs[2].model_dump_json(exclude_none=True))
    assert again == configs[2]
    assert again.generation is not None
    assert again.generation.prompt_tokens == (11, 42, 7)
    (unit,), _ = expand(parse(models=[generating], measurement={"runs": 20, "warmup": 0}))
    given = unit.config(tmp_path / "m.pte", tmp_path / "run", ["off"]).experiments[0]
    assert (given.iterations, given.warmup) == (20, 0)


def test_what_nobody_can_measure_is_refused() -> None:
    axes = {
        "devices": [{"name": f"d{n}"} for n in range(1000)],
        "precisions": ["fp32", "fp16", "int8"],
        "models": ["toy_cnn", "decoder"],
        "backends": ["xnnpack", "portable"],
    }
    (line,) = problems(**axes)
    assert line.startswith("models: 12000 combinations of models, precisions, backends and devices")
    (line,) = problems(sme=["off", "sme2"], threads=[1, 2], measurement={"blocks": 50_000})
    assert line.startswith("measurement.blocks: 200000 launches in each run")


def test_a_model_stands_once_for_each_length_of_a_prompt() -> None:
    entries = [
        {"model": "decoder", "generation": {"new_tokens": 128, "prompt_length": length}}
        for length in (128, 512)
    ]
    units, _ = expand(parse(models=entries))
    assert [unit.model.label for unit in units] == [
        "decoder_prompt128_generate128",
        "decoder_prompt512_generate128",
    ]
    assert problems(models=[entries[0], entries[0]]) == [
        "models: 'decoder_prompt128_generate128' appears twice"
    ]
    for length in (0, -1, 32_769, "many", 1.5):
        wrong = {"model": "decoder", "generation": {"new_tokens": 2, "prompt_length": length}}
        (line,) = problems(models=[wrong])
        assert line.startswith("models.0.generation.prompt_length: ")


def test_a_generation_that_cannot_be_is_named() -> None:
    first = {"model": "decoder", "generation": GENERATION, "method": "decode"}
    second = {"model": "decoder", "generation": {"new_tokens": 64}}
    assert problems(models=[first, second]) == [
        f"models.0: generation names its own methods, so leave out method (got {first})",
        (
            "models.1.generation: tokens are generated after one prompt: give prompt tokens, a "
            f"prompt length, or a prompt and tokenizer (got {second['generation']})"
        ),
    ]


def test_a_unit_says_how_to_repeat_it(tmp_path: Path) -> None:
    (unit,), _ = expand(parse(threads=[1, 2], sme=["sme2", "off"], measurement={"runs": 7}))
    config = unit.config(tmp_path / "m.pte", tmp_path / "run", unit.sme)
    again = Config.model_validate_json(config.model_dump_json(exclude_none=True))
    assert again == config
    assert [(e.name, e.sme, e.threads, e.iterations) for e in again.experiments] == [
        ("linux_sme2", "sme2", (1, 2), 7),
        ("linux_off", "off", (1, 2), 7),
    ]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs/examples").glob("matrix_*.json")), ids=lambda path: path.name
)
def test_shipped_matrices_are_valid(path: Path) -> None:
    units, _ = expand(load_matrix(path))
    assert units


def test_the_example_to_start_from_is_what_the_issue_asks_for() -> None:
    units, _ = expand(parse_matrix(read_installed("examples/matrix_host.json"), "example"))
    axes = {
        (unit.model.name, unit.precision, threads) for unit in units for threads in unit.threads
    }
    assert [len({each[i] for each in axes}) for i in range(3)] == [3, 2, 2]
    assert len(axes) == 12


def test_a_program_is_measured_as_it_is(tmp_path: Path) -> None:
    # GIVEN two programs beside the matrix, of one of which an export says what it is
    for name in ("llm", "other"):
        (tmp_path / f"{name}.pte").write_bytes(b"program")
    known = {"model": "chat", "method": "forward", "backend": "xnnpack", "precision": "fp16"}
    (tmp_path / "llm.pte.json").write_text(json.dumps(known))
    lengths = [{"new_tokens": 128, "prompt_length": length} for length in (128, 512)]
    models = [{"model": "llm.pte", "generation": each} for each in lengths]
    text = json.dumps({"models": [*models, "other.pte", "toy_cnn"], "precisions": ["fp32", "int8"]})
    # WHEN the matrix is expanded
    units, left_out = expand(parse_matrix(text, "m.json", tmp_path))
    # THEN each is one run, in what it was made in, and none is exported
    assert [unit.text for unit in units] == [
        "llm_prompt128_generate128 xnnpack fp16 on host",
        "llm_prompt512_generate128 xnnpack fp16 on host",
        "other unknown unknown on host",
        "toy_cnn xnnpack fp32 on host",
        "toy_cnn xnnpack int8 on host",
    ]
    assert [unit.label for unit in units[1:3]] == ["llm_prompt512_generate128_pte", "other_pte"]
    assert (len({unit.program for unit in units[:2]}), left_out) == (1, [])
    exported = export_programs([units[0].program], tmp_path / "programs", print, anew=True)
    assert exported[units[0].program].path == tmp_path / "llm.pte"
    assert not (tmp_path / "programs").exists()
    assert units[0].config(tmp_path / "llm.pte", tmp_path / "run", ["off"]).generation is not None


def test_programs_that_cannot_be_are_named(tmp_path: Path) -> None:
    (tmp_path / "w.pt").touch()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.pte").touch()
    (tmp_path / "none.pte").mkdir()
    heavy = {"model": "a/x.pte", "weights": "w.pt"}
    for models, expected in (
        (["none.pte"], "models.0.model: program "),
        ([heavy], "models.0: a program has its weights already, so leave out weights"),
        (["a/x.pte", "b/x.pte"], "models: two different models are called 'x'; measure them in"),
    ):
        with pytest.raises(UsageError) as caught:
            parse_matrix(json.dumps({"models": models}), "m.json", tmp_path)
        assert expected in str(caught.value)
    (tmp_path / "a/x.pte.json").write_text("{")
    with pytest.raises(EtprofError, match=r"x\.pte\.json"):
        expand(parse_matrix('{"models": ["a/x.pte"]}', "m.json", tmp_path))
