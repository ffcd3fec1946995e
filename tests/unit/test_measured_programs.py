"""What is known of a measured program: its inputs, its identity, and what should come out."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.base.errors import ExportError
from etprof.run.accuracy import TextQuality
from etprof.run.manifest import MeasuredProgram
from etprof.run.program import (
    ExportManifest,
    LoadedProgram,
    find_beside,
    load_expected,
    refuse_inaccurate,
)

if TYPE_CHECKING:
    from pathlib import Path

ONE = b"\0\0\x80\x3f"
"""1.0 as float32."""


def tensor(name: str, content: bytes = ONE, **changes: object) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    return {
        "index": 0, "dtype": "float32", "shape": [len(content) // 4], "path": name,
        "sha256": digest, **changes,
    }  # fmt: skip


def program(
    *inputs: dict[str, Any],
    given: tuple[object, ...] | None = None,
    name: str = "",
    path: str = "m.pte",
    source: str | None = "code",
    content: str | None = "pte",
    method: dict[str, Any] | None = None,
    **manifest: object,
) -> LoadedProgram:
    """A program that got `given`, by default its example inputs."""
    exported = {
        "model": "net", "backend": "xnnpack", "precision": "fp32", "source": {"sha256": source},
        "methods": {"forward": {"inputs": inputs, **(method or {})}}, **manifest,
    }  # fmt: skip
    hashes = [each["sha256"] for each in inputs if each["path"]] if given is None else given
    model = {"name": "net", "path": path, "sha256": content, "method": "forward"}
    measured = {"model": model, "inputs": [{"sha256": digest} for digest in hashes]}
    return LoadedProgram(
        name=name,
        measured=MeasuredProgram.model_validate(measured),
        exported=ExportManifest.model_validate(exported),
    )


A, B = tensor("a.bin"), tensor("b.bin", b"12341234")
CONSTANT = {"index": 1, "dtype": "int", "path": None, "value": 3}
UNHASHED = tensor("a.bin", sha256=None)
NOTHING = LoadedProgram()


@pytest.mark.parametrize(
    ("measured", "has_them"),
    [
        (program(A, B), True),
        (program({**CONSTANT, "sha256": None}, A), True),
        (program(), True),
        (program(A, B, given=(B["sha256"], A["sha256"])), False),
        (program(A, given=()), False),
        (program(A, given=("other",)), False),
        (program(UNHASHED, given=(None,)), False),
        (NOTHING, False),
        (replace(program(A), exported=None), False),
        (replace(program(A), measured=None), False),
    ],
)
def test_example_inputs_are_those_of_the_export(measured: LoadedProgram, has_them: object) -> None:
    assert measured.has_example_inputs is has_them


def test_without_a_method_of_its_own_the_exports_first_is_meant() -> None:
    measured = program(A)
    assert measured.measured is not None
    assert measured.precision is None

    def called(method: str | None) -> LoadedProgram:
        model = measured.measured and measured.measured.model
        assert model is not None
        changed = model.model_copy(update={"method": method, "precision": "fp16"})
        record = MeasuredProgram(
            model=changed, inputs=measured.measured and measured.measured.inputs
        )
        return replace(measured, measured=record)

    assert called(None).method == measured.method is not None
    assert called(None).precision == "fp16"
    # AND of a method that the export does not know nothing is known
    assert called("another").method is None
    assert not called("another").has_same_inputs(program({**A, "sha256": "another"}))
    assert NOTHING.precision is None


def test_a_program_without_input_files_got_its_examples() -> None:
    measured = program(A)
    assert measured.measured is not None
    unrecorded = replace(measured, measured=measured.measured.model_copy(update={"inputs": None}))
    assert unrecorded.inputs is None
    assert not unrecorded.has_example_inputs


def image(*shape: int, order: tuple[int, ...] | None = (0, 1, 2, 3)) -> dict[str, Any]:
    return {**A, "shape": list(shape), "dim_order": order}


@pytest.mark.parametrize(
    ("inputs", "takes"),
    [
        ([image(1, 3, 32, 32)], True),
        ([image(1, 3, 1, 2)], True),
        ([image(1, 2, 2, 1)], True),
        # Both layouts are the same bytes.
        ([image(1, 1, 32, 32)], False),
        ([image(1, 3, 1, 1)], False),
        ([image(1, 3, 32, 32, order=(0, 2, 3, 1))], False),
        # One of them is enough.
        ([image(1, 1, 8, 8), image(1, 3, 8, 8)], True),
        # No image; and one that nothing is known of.
        ([{**A, "shape": [1, 3, 32], "dim_order": None}], False),
        ([{**A, "shape": None}], False),
        ([image(1, 3, 32, 32, order=None), image(1, 3, 8, 8)], None),
    ],
)
def test_an_image_has_its_channels_before_its_places(
    inputs: list[dict[str, Any]], takes: object
) -> None:
    assert program(*inputs).takes_nchw is takes
    assert NOTHING.takes_nchw is None


def test_the_same_inputs_are_the_same_files_or_the_same_examples_of_the_same_code() -> None:
    half = tensor("a.bin", b"\0\x3c", dtype="float16", shape=[1])
    assert program(A).has_same_inputs(program(A, source="another", name="b"))
    # AND each precision stores them in its own type
    assert program(A).has_same_inputs(program(half))
    for other in (
        program(half, source="another"),
        program(half, source=None),
        program(half, model="another"),
        program({**half, "shape": [2]}),
        program(half, given=("another",)),
        replace(program(half), exported=None),
        NOTHING,
    ):
        assert not program(A).has_same_inputs(other)
        assert not other.has_same_inputs(program(A))
    # AND of what is not known nothing is the same
    assert not program(A, source=None).has_same_inputs(program(half, source=None))
    assert not program(source="code").has_same_inputs(program(source="code", given=("another",)))
    assert not NOTHING.has_same_inputs(NOTHING)


def test_the_same_is_computed_by_the_same_program_with_the_same_inputs() -> None:
    first = program(A, name="first")
    assert first.computes_the_same(replace(NOTHING, name="first"))
    assert first.computes_the_same(program(A, name="second"))
    for other in (
        program(A, name="second", content="another"),
        program(B, name="second"),
        LoadedProgram(name="second"),
    ):
        assert not first.computes_the_same(other)
    unknown = [program(A, name=name, content=None) for name in ("first", "second")]
    assert not unknown[0].computes_the_same(unknown[1])


QUALITY = TextQuality.model_validate({
    "program": "pte", "text": "a text", "tokens": 9, "vocabulary": 32, "perplexity": 5.0,
    "verdict": {"question": "text", "answer": "passed"},
})  # fmt: skip


def test_the_quality_of_another_program_is_not_this_ones() -> None:
    assert program(quality=QUALITY).quality == QUALITY
    assert program(quality=QUALITY, content="another").quality is None
    assert program().quality is None
    assert NOTHING.quality is None


@pytest.mark.parametrize(
    ("own", "eager", "ratio"), [(6.0, 4.0, 1.5), (None, 4.0, None), (6.0, None, None)]
)
def test_perplexities_have_a_ratio_where_both_are_known(
    own: float | None, eager: float | None, ratio: float | None
) -> None:
    changed = QUALITY.model_copy(update={"perplexity": own, "eager_perplexity": eager})
    assert changed.perplexity_ratio == ratio


@pytest.mark.parametrize(
    ("same", "new", "share"), [(3, 4, 0.75), (0, 4, 0.0), (None, 4, None), (0, 0, None)]
)
def test_tokens_agree_up_to_the_first_other_one(
    same: int | None, new: int, share: float | None
) -> None:
    changed = QUALITY.model_copy(update={"same_tokens": same, "new_tokens": new})
    assert changed.agreement == share


def write_outputs(folder: Path) -> LoadedProgram:
    """A program with state: outputs of two inferences, of which some are not the export's."""
    contents = {"first": b"1111", "second": b"2222", "own": b"3333"}
    for name, content in contents.items():
        (folder / f"{name}.bin").write_bytes(content)
    first, second, own = (tensor(f"{name}.bin", content) for name, content in contents.items())
    changed, absent = tensor("own.bin", b"4444"), tensor("absent.bin")
    method = {
        "references": [first, changed],
        "converted": [absent, own],
        "steps": [{"step": 2, "references": [second]}],
    }
    measured = program(A, path=str(folder / "m.pte"), method=method)
    return replace(measured, steps=load_expected(measured))


def test_outputs_are_expected_that_are_still_the_exports(tmp_path: Path) -> None:
    loaded = write_outputs(tmp_path)
    data = {
        number: [{i: t.data for i, t in kind.items()} for kind in (step.references, step.converted)]
        for number, step in loaded.steps.items()
    }
    assert data == {1: [{0: b"1111"}, {1: b"3333"}], 2: [{0: b"2222"}, {}]}
    assert loaded.has_state
    assert loaded.expect(2) == loaded.steps[2]
    assert loaded.expect(3).references == {}
    assert loaded.references == loaded.steps[1].references


def test_without_state_every_inference_gives_what_the_first_does(tmp_path: Path) -> None:
    loaded = write_outputs(tmp_path)
    assert loaded.exported is not None
    forward = loaded.exported.methods["forward"].model_copy(update={"steps": ()})
    exported = loaded.exported.model_copy(update={"methods": {"forward": forward}})
    stateless = replace(loaded, exported=exported)
    assert not stateless.has_state
    assert stateless.expect(2) == stateless.steps[1]


def test_nothing_is_expected_of_other_inputs(tmp_path: Path) -> None:
    loaded = write_outputs(tmp_path)
    assert loaded.measured is not None
    other = replace(loaded, measured=loaded.measured.model_copy(update={"inputs": ()}))
    assert {step.references == step.converted == {} for step in load_expected(other).values()} == {
        True
    }
    assert load_expected(NOTHING) == {}


def test_a_tensor_is_beside_its_program_or_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    for place in (folder / "a.bin", tmp_path / "a.bin"):
        place.write_bytes(ONE)
    measured = program(A, path=str(folder / "m.pte"))
    assert measured.exported is not None
    (file,) = measured.exported.methods["forward"].inputs
    for path, found in (
        ("a.bin", folder / "a.bin"),
        ("../a.bin", None),
        (str(tmp_path / "a.bin"), None),
        ("absent.bin", None),
        (".", None),
        (None, None),
    ):
        assert find_beside(measured, file.model_copy(update={"path": path})) == found


def test_options_that_made_another_program_are_told_as_flags() -> None:
    options = {
        "operators": "all", "config_precisions": ["fp16", "int8"], "per_op_mode": True,
        "external_constants": False, "memory_planning": "greedy", "keep_fp16_sums": None,
        "channels_last": True, "scopes": [], "embeddings": 4, "weights": {"path": "w.bin"},
        "example_inputs": ["1x3", {"input": "2x3"}, {"other": "x"}, 7],
    }  # fmt: skip
    exported = program(options=options).exported
    assert exported is not None
    assert exported.option_words == (
        "--operators", "all", "--config-precisions", "fp16,int8", "--per-op", "--channels-last",
    )  # fmt: skip
    assert exported.model_words == (
        "net", "--input", "1x3", "--input", "2x3", "--weights", "w.bin",
    )  # fmt: skip
    planned = exported.model_copy(
        update={"options": {"memory_planning": "naive", "weights": {"name": "IMAGENET1K"}}}
    )
    assert planned.model_words == ("net",)
    assert planned.option_words == ("--memory-planning", "naive")


@pytest.mark.parametrize("text", ["failed", "unknown", None])
def test_wrong_outputs_are_told_by_method_and_refused(tmp_path: Path, text: str | None) -> None:
    verdicts = {
        "prefill": [{"question": "lowering", "answer": "passed"}],
        "decode": [
            {"question": "lowering", "answer": "failed", "output": 0, "snr_db": 3.0,
             "least_snr_db": 40.0},
            {"question": "precision", "answer": "passed"},
        ],
    }  # fmt: skip
    methods: dict[str, Any] = {name: {"check": {"verdicts": v}} for name, v in verdicts.items()}
    verdict = {"question": "text", "answer": text}
    quality = None if text is None else {**QUALITY.model_dump(), "verdict": verdict}
    exported = program(methods={**methods, "other": {}}, quality=quality).exported
    assert exported is not None
    (failed,) = exported.failed_verdicts
    assert failed.question == "lowering"
    of_method, *of_text = exported.failed
    assert of_method == f"method 'decode': {failed.text}"
    assert len(of_text) == (text == "failed")
    path = tmp_path / "m.pte"
    refuse_inaccurate(path)
    path.with_name("m.pte.json").write_text(exported.model_dump_json())
    with pytest.raises(ExportError, match=r"m\.pte gives wrong outputs: method 'decode': "):
        refuse_inaccurate(path)
    # AND a program whose outputs are right is no reason to stop
    right = exported.model_copy(update={"methods": {}, "quality": None})
    path.with_name("m.pte.json").write_text(right.model_dump_json())
    refuse_inaccurate(path)
