"""Language models: what is asked of the runner, what its times become, what the reports say."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from etprof.analysis.assessment import assess_run
from etprof.analysis.generation import TokenComparison, compare_tokens, summarise_generation
from etprof.analysis.run_analysis import RunAnalysis, analyze_run
from etprof.analysis.split.cold_start import LedgerEntry, build_ledger
from etprof.base.errors import InputFileError, UsageError
from etprof.base.limits import MOST_PROMPT
from etprof.cli import run_command_line
from etprof.config import parse_config
from etprof.measuring.launching import Launcher
from etprof.measuring.pipeline import MeasuredRun, measure
from etprof.measuring.plan import Experiment, Settings, configured_settings, plan
from etprof.measuring.resume import load_earlier
from etprof.run.directory import GeneratedTokens, GenerationMetrics, load_metrics
from etprof.run.generation import Generation, parse_ids, plan_generation, token_shapes
from etprof.run.load import Run
from etprof.run.program import Program
from etprof.run.runner_result import GenerationResult
from etprof.run.tokenizer import load_tokenizer
from etprof.tables.measurement import generation_sections
from etprof.targets.request import RunnerRequest, runner_arguments
from etprof.views.documents import assessment_document
from etprof.views.formats.html import render_html
from etprof.views.formats.hud import hud_metrics
from etprof.views.markdown import render_markdown
from etprof.views.terminal import render_report
from tests.json_numbers import undeclared
from tests.world.results import MS, GeneratingTarget
from tests.world.sim_target import SimTarget
from tests.world.spec import plain

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.run.runner_result import RunnerResult

GENERATION = Generation(new_tokens=4, prompt_tokens=(7, 8, 9))
SIDES = (Experiment(name="off", sme="off"), Experiment(name="sme2", sme="sme2"))


def run(
    tmp_path: Path, target: SimTarget, generation: Generation | None = GENERATION
) -> MeasuredRun:
    tmp_path.mkdir(exist_ok=True)
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    return measure(
        program=Program(name="m", label="m_fp32", model=model, method="decode"),
        target=target,
        run=tmp_path / "run",
        planned=plan(
            SIDES,
            Settings(operator_launches=1, blocks=6, operator_iterations=10, generation=generation),
            target,
        ),
        progress=lambda *_: None,
    )


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> RunAnalysis:
    folder = tmp_path_factory.mktemp("generation")
    run(folder, GeneratingTarget())
    return analyze_run(Run.load(folder / "run"))


@pytest.mark.parametrize(
    ("known", "count", "shapes"),
    [
        ((), 1, ("1x1", "1")),
        ((), 20, ("1x20", "1")),
        (("1x64", "64"), 1, ("1x1", "1")),
        (("1x64", "64"), 20, ("1x20", "20")),
        (("1x64", "1"), 20, ("1x20", "1")),
        (("64", "64"), 20, ("20", "20")),
        (("1x1", "1"), 1, ("1x1", "1")),
    ],
)
def test_a_languages_models_shapes(
    known: tuple[str, ...], count: int, shapes: tuple[str, str]
) -> None:
    assert token_shapes(known, count) == shapes


def test_microkernels_are_counted_of_a_step_and_of_the_prompt(tmp_path: Path) -> None:
    """The runner took the largest shape, so a step was said to run what a long prompt does."""
    # GIVEN a program with one method of any number of tokens
    target = SimTarget(plain(counts=True))
    program = Program(name="m", label="m_fp32", model=tmp_path / "m.pte")
    program.model.write_bytes(b"program")
    settings = Settings(operator_launches=1, blocks=6, generation=GENERATION, kernels=True)
    # WHEN its microkernels are counted
    planned = plan(SIDES, settings, target)
    launcher = Launcher(program, target, tmp_path / "run", settings)
    asked = {
        each.purpose: launcher.request(each)
        for each in planned.passes
        if each.experiment.name == "sme2"
    }
    # THEN once for one token and once for the three of the prompt, in files of their own
    assert asked["kernels"].shapes == ("1x1", "1")
    assert asked["prefill"].shapes == ("1x3", "1")
    assert asked["kernels"].kernel_trace != asked["prefill"].kernel_trace
    assert asked["kernels"].result != asked["prefill"].result
    assert {each.generation for each in asked.values()} == {None}
    # AND where the program took two of them at once, for two
    earlier = target.result(asked["kernels"], "sme2", [1, 1], 1)
    read = {
        "prompt_tokens": [7, 8, 9],
        "tokens": [5],
        "prefill_method": "forward",
        "decode_method": "forward",
        "prefilled_tokens": 2,
        "repetitions": [
            {"prefill_ns": 1, "time_to_first_token_ns": 2, "token_latency_ns": [], "total_ns": 2}
        ],
    }
    folder = launcher.files(SIDES[1]).folder
    folder.mkdir(parents=True)
    file = launcher.files(SIDES[1]).file("_result.json")
    file.write_text(json.dumps({**earlier, "generation": read}))
    again = next(e for e in planned.passes if (e.experiment.name, e.purpose) == ("sme2", "prefill"))
    assert launcher.request(again).shapes == ("1x2", "1")
    file.write_text("{")
    assert launcher.request(again).shapes == ("1x3", "1")
    # AND a prompt of one token is a step
    short = GENERATION.model_copy(update={"prompt_tokens": (7,)})
    stepwise = plan(SIDES, settings.model_copy(update={"generation": short}), target)
    assert "prefill" not in {each.purpose for each in stepwise.passes}


def test_timing_and_split_generate_and_evidence_does_not(tmp_path: Path) -> None:
    # GIVEN a run that generates four tokens in each iteration
    target = GeneratingTarget()
    run(tmp_path, target)
    # THEN the split has ten executions at least, in three generations, and nothing has outputs
    timing, split = target.requests[:12], target.requests[12:]
    assert {request.generation for request in target.requests} == {GENERATION}
    assert [request.iterations for request in split] == [3, 3]
    assert {request.iterations for request in timing} == {10}
    assert not [word for r in split for word in runner_arguments(r) if "--outputs" in word]


def test_the_runner_is_given_ids_and_no_method(tmp_path: Path) -> None:
    plain = RunnerRequest(model=tmp_path / "m.pte", result=tmp_path / "r", method="decode")
    words = runner_arguments(replace(plain, generation=GENERATION))
    assert "--generate=4" in words
    assert "--prompt-tokens=7,8,9" in words
    assert not [word for word in words if "method" in word]
    named = GENERATION.model_copy(update={"prefill_method": "read", "decode_method": "add"})
    words = runner_arguments(replace(plain, generation=named))
    assert {"--prefill-method=read", "--decode-method=add"} <= {*words}
    assert "--method=decode" in runner_arguments(plain)


def test_metrics_hold_rates_and_every_token_latency(tmp_path: Path) -> None:
    run(tmp_path, GeneratingTarget())
    metrics = load_metrics(tmp_path / "run")
    assert metrics is not None
    side = metrics.experiments["off"]
    speed = side.blocks[0].generation
    assert speed is not None
    assert speed.time_to_first_token_ns == [8 * MS] * 2
    # Three prompt tokens in 6 ms; three tokens after the first in 8 ms.
    assert speed.prefill_tokens_per_second == pytest.approx([500.0] * 2)
    assert speed.decode_tokens_per_second == pytest.approx([375.0] * 2)
    assert speed.token_latency_ns == [2 * MS, 2 * MS, 4 * MS] * 2
    assert side.generated is not None
    assert side.generated.tokens == [5, 6, 7, 8]
    assert side.generated.differing_blocks == []


@pytest.mark.parametrize("missing", ["decode_tokens_per_second", "token_latency_ns"])
def test_rates_without_latencies_are_damage(tmp_path: Path, missing: str) -> None:
    """S5: a median of nothing was written as NaN, which no JSON holds."""
    document = {
        "time_to_first_token_ns": [5], "prefill_tokens_per_second": [2.0],
        "decode_tokens_per_second": [3.0], "token_latency_ns": [7],
    }  # fmt: skip
    GenerationMetrics.model_validate(document)
    with pytest.raises(ValidationError, match="one is empty"):
        GenerationMetrics.model_validate(document | {missing: []})


@pytest.mark.parametrize(
    ("field", "value"),
    [("token_latency_ns", [1]), ("token_latency_ns", [0, 0]), ("prefill_ns", 0)],
)
def test_a_result_whose_tokens_and_times_disagree_is_refused(field: str, value: object) -> None:
    """S5: a rate of it was a division by zero, or no rate."""
    repetition = {
        "prefill_ns": 5, "time_to_first_token_ns": 6, "token_latency_ns": [7, 7],
        "total_ns": 20,
    }  # fmt: skip
    document = {
        "prompt_tokens": [1], "tokens": [1, 2, 3], "prefill_method": "forward",
        "decode_method": "forward", "prefilled_tokens": 1, "repetitions": [repetition],
    }  # fmt: skip
    GenerationResult.model_validate(document)
    with pytest.raises(ValidationError, match=field):
        GenerationResult.model_validate(document | {"repetitions": [repetition | {field: value}]})


def test_speeds_are_medians_with_intervals_over_blocks(analysis: RunAnalysis) -> None:
    speed = next(e for e in analysis.experiments if e.name == "sme2").generation
    assert speed is not None
    assert speed.decode_tokens_per_second.median == pytest.approx(750.0)
    assert speed.decode_tokens_per_second.interval is not None
    assert len(speed.decode_tokens_per_second.block_medians) == 6
    assert (speed.tokens, speed.tokens_of_a_launch, speed.token_latency_ns.median) == (36, 6, MS)


def test_tokens_a_second_and_the_latency_of_a_token_agree(analysis: RunAnalysis) -> None:
    """N15: 450 tokens/s stood beside 1.43 ms a token: a mean of all beside a median of some."""
    for experiment in analysis.experiments:
        speed = experiment.generation
        assert speed is not None
        rate, mean = speed.decode_tokens_per_second, speed.token_mean_ns
        assert rate.median == pytest.approx(1e9 / mean.median)
        assert rate.interval is not None
        assert mean.interval is not None
        assert rate.interval.low == pytest.approx(1e9 / mean.interval.high)
        # 1, 1 and 2: most tokens are faster than the mean one.
        assert mean.median == pytest.approx(speed.token_latency_ns.median * 4 / 3)


def test_a_cold_first_token_is_loading_and_the_first_generation(analysis: RunAnalysis) -> None:
    """N15: what a user waits for after starting an application was nowhere."""
    speed = next(e for e in analysis.experiments if e.name == "sme2").generation
    assert speed is not None
    assert speed.cold_first_token_ns is not None
    loads = [b.load.total_ns or 0 for b in analysis.timed["sme2"].blocks]
    assert speed.cold_first_token_ns.block_medians == tuple(load + 10 * MS for load in loads)
    assert speed.time_to_first_token_ns.median == 4 * MS


def test_latency_is_told_by_position_in_the_cache(analysis: RunAnalysis) -> None:
    """N15: later tokens read more of the cache; the first of four is the prompt's."""
    speed = next(e for e in analysis.experiments if e.name == "sme2").generation
    assert speed is not None
    found = [(each.first, each.last, each.latency_ns.median) for each in speed.positions]
    assert found == [(3, 3, MS), (4, 4, MS), (5, 5, 2 * MS)]
    assert all(each.latency_ns.interval is not None for each in speed.positions)
    (table,) = [s.tables[0] for s in generation_sections(analysis.experiments) if "sme2" in s.title]
    assert [each["tokens_per_second"] for each in table.records()] == [1000, 1000, 500]


def test_blocks_that_generated_other_tokens_are_counted_from_one(analysis: RunAnalysis) -> None:
    experiment = analysis.experiments[0]
    assert experiment.metrics is not None
    assert experiment.metrics.generated is not None
    generated = experiment.metrics.generated.model_copy(update={"differing_blocks": [1, 4]})
    metrics = experiment.metrics.model_copy(update={"generated": generated})
    loaded = replace(experiment.loaded, metrics=metrics)
    (section,) = generation_sections([replace(experiment, loaded=loaded)])
    assert "Note: blocks 2, 5 generated other tokens than the first" in section.lines[-1]


@pytest.mark.parametrize(("tokens", "known"), [(28, 0), (29, 1), (298, 1), (299, 2)])
def test_high_percentiles_need_tokens(analysis: RunAnalysis, tokens: int, known: int) -> None:
    """N15: p99 of 345 tokens of all launches together, without an interval."""
    metrics = analysis.timed["sme2"]
    blocks = [
        block.model_copy(
            update={
                "generation": block.generation.model_copy(
                    update={"token_latency_ns": [*range(MS, MS + tokens)]}
                )
            }
        )
        for block in metrics.blocks
        if block.generation
    ]
    speed = summarise_generation(metrics.model_copy(update={"blocks": blocks}))
    assert speed is not None
    told = [each for each in (speed.token_p90_ns, speed.token_p99_ns) if each is not None]
    assert len(told) == known
    assert all(each.interval is not None for each in told)


def test_a_higher_rate_is_faster(analysis: RunAnalysis) -> None:
    ledger = {entry.label: entry for entry in sides_of(analysis)}
    for label in (
        "Time to first token", "Prefill, tokens", "Decode, tokens", "Latency of a token, mean",
        "Latency of a token, median",
    ):  # fmt: skip
        effect = ledger[label].effect
        assert effect is not None
        assert effect.verdict == "faster"
        assert effect.speed_up == pytest.approx(2.0)
    assert ledger["Decode, tokens"].unit == "1/s"
    assert (ledger["Decode, tokens"].baseline, ledger["Decode, tokens"].candidate) == (375, 750)


def sides_of(analysis: RunAnalysis) -> tuple[LedgerEntry, ...]:
    off, sme2 = (e.metrics for name in ("off", "sme2") for e in analysis.experiments
                 if e.name == name)  # fmt: skip
    assert off is not None
    assert sme2 is not None
    return build_ledger(off, sme2, margin=0.02)


def test_runs_without_tokens_have_no_such_lines(tmp_path: Path) -> None:
    run(tmp_path, SimTarget(plain(methods=["decode"])), generation=None)
    analysis = analyze_run(Run.load(tmp_path / "run"))
    assert not [entry for entry in sides_of(analysis) if "token" in entry.label]
    assert analysis.experiments[0].generation is None
    assert "token" not in shown(analysis)


def shown(analysis: RunAnalysis) -> str:
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(render_report(assess_run(analysis), top=12))
    return console.export_text()


def test_reports_show_speed_and_tokens(analysis: RunAnalysis) -> None:
    text = shown(analysis)
    head = "3 prompt tokens (2 at once by prefill, 1 one by one by decode), 4 new tokens"
    assert f"{head}.\n" in text
    row = next(line for line in text.splitlines() if "Decode, tokens" in line)
    assert [cell.strip() for cell in row.split("│")[3:6]] == ["375 /s", "375 /s … 375 /s", "6"]
    assert "36 tokens after the first, 6 in a launch; a 90th percentile needs 29" in text
    assert "Generated: 5 6 7 8" in text
    assert "Latency by position in the cache" in text
    page = render_markdown([assess_run(analysis)])
    assert "| Decode, tokens | 750 /s | 750 /s … 750 /s |" in page
    html = render_html([assess_run(analysis)])
    assert ">Generation: off</h2>" in html
    assert "375 /s … 375 /s</td>" in html
    document: Any = json.loads(json.dumps(assessment_document(assess_run(analysis))))
    assert undeclared("analyze", document) == []
    speed = document["experiments"]["off"]["generation"]["speed"]
    assert speed["token_latency_ns"]["median"] == 2 * MS


def test_different_tokens_are_named(analysis: RunAnalysis) -> None:
    (comparison,) = assess_run(analysis).comparisons
    assert comparison.tokens is not None
    assert comparison.tokens.first_difference == 3
    expected = "the sides generated different tokens: 3 tokens are equal, then 8 against 9"
    assert [note for note in comparison.notes if note.startswith(expected)]


def test_equal_tokens_are_said_to_be_equal(tmp_path: Path) -> None:
    run(tmp_path, GeneratingTarget(last=8))
    (comparison,) = assess_run(analyze_run(Run.load(tmp_path / "run"))).comparisons
    assert str(comparison.tokens) == "all 4 tokens are equal"
    assert not [note for note in comparison.notes if "tokens" in note]


def test_one_side_may_be_shorter_and_prompts_have_to_agree() -> None:
    assert TokenComparison((1, 2), (1, 2, 3)).first_difference == 2
    one = GeneratedTokens(
        prompt_tokens=[1], tokens=[2], prefill_method="p", decode_method="d", prefilled_tokens=1
    )
    assert compare_tokens(one, one.model_copy(update={"prompt_tokens": [2]})) is None
    assert compare_tokens(one, None) is None


def test_a_launch_that_says_something_else_is_reported(tmp_path: Path) -> None:
    class Unsteady(GeneratingTarget):
        def run(self, request: RunnerRequest) -> RunnerResult:
            self.last = 9 + (len(self.requests) > 9)
            return super().run(request)

    run(tmp_path, Unsteady())
    text = shown(analyze_run(Run.load(tmp_path / "run")))
    assert "generated other tokens than the first: the program is not repeatable" in text


def test_dashboards_get_the_names_of_language_models(analysis: RunAnalysis) -> None:
    metrics = next(e.metrics for e in analysis.experiments if e.name == "off")
    assert metrics is not None
    found = hud_metrics(metrics)
    assert found["token_per_sec"] == pytest.approx([375.0] * 12)
    assert found["llm_model_load_time(ms)"] == pytest.approx(
        [(block.load.total_ns or 0) / MS for block in metrics.blocks]
    )
    assert "generate_time(ms)" in found


def test_the_run_continues_only_with_the_same_prompt(tmp_path: Path) -> None:
    run(tmp_path, GeneratingTarget())
    program = Program(name="m", label="m_fp32", model=tmp_path / "m.pte", method="decode")
    settings = Settings(
        operator_launches=1, blocks=6, operator_iterations=10, generation=GENERATION
    )
    load_earlier(tmp_path / "run", program, SimTarget(plain()), SIDES, settings)
    changed = GENERATION.model_copy(update={"prompt_tokens": (7,)})
    other = settings.model_copy(update={"generation": changed})
    with pytest.raises(UsageError, match="generation was"):
        load_earlier(tmp_path / "run", program, SimTarget(plain()), SIDES, other)


def test_ids_are_read_from_words_and_files(tmp_path: Path) -> None:
    assert parse_ids("1, 2 3") == (1, 2, 3)
    assert parse_ids("one") is None
    assert parse_ids("") is None
    # S5: Python refuses to read a number of over 4300 digits.
    assert parse_ids("1" * 5000) is None
    file = tmp_path / "ids.txt"
    file.write_text("4 5\n6")
    assert plan_generation(new_tokens=2, prompt_tokens=file).prompt_tokens == (4, 5, 6)


def test_a_prompt_of_a_length_has_ids_that_small_vocabularies_know() -> None:
    ids = plan_generation(new_tokens=2, prompt_length=512).prompt_tokens
    assert (len(ids), min(ids), max(ids)) == (512, 1, 31)
    longest = plan_generation(new_tokens=2, prompt_length=MOST_PROMPT).prompt_tokens
    assert len(",".join(map(str, longest))) < 2**17 - 100, "one argument of Linux"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "tokens are generated after one prompt: give prompt tokens, a prompt length, or"),
        ({"prompt_tokens": (1,), "prompt": "x"}, "tokens are generated after one prompt"),
        ({"prompt_tokens": (1,), "prompt_length": 3}, "tokens are generated after one prompt"),
        ({"prompt": "x"}, "a prompt of text needs the model's tokenizer"),
        ({"prompt_tokens": ()}, "the prompt tokens () are no ids"),
    ],
)
def test_prompts_that_cannot_be_used(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_generation(new_tokens=2, **given)
    assert str(caught.value).startswith(message)


def test_tokenizers_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="does not exist; give the file that came with the"):
        load_tokenizer(tmp_path / "nowhere.json")
    for name in ("tokenizer.json", "tokenizer.model"):
        file = tmp_path / name
        file.write_text("not a tokenizer")
        with pytest.raises(InputFileError, match="is not a known kind of tokenizer"):
            load_tokenizer(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt-tokens", "1"], "--prompt-tokens is given without --generate N"),
        (["--generate", "4"], "--generate reads a prompt first: give --prompt-length N"),
        (["--generate", "4", "--prompt-tokens", "1", "--method", "decode"],
         "--generate takes its methods from --prefill-method and --decode-method"),
        (["--generate", "4", "--prompt-tokens", "nowhere.txt"], "cannot read nowhere.txt"),
    ],
)  # fmt: skip
def test_flags_that_do_not_belong_together(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run_command_line(["profile", "m.pte", *words])
    assert str(caught.value).startswith(message)


def test_configs_ask_for_tokens(tmp_path: Path) -> None:
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    document: dict[str, Any] = {
        "model": str(model),
        "output_root": "out",
        "generation": {"new_tokens": 4, "prompt_tokens": [7, 8, 9]},
        "experiments": [{"name": "a"}],
    }
    config = parse_config(json.dumps(document), "c.json")
    assert configured_settings(config).generation == GENERATION
    for given, problem in (
        ({}, "generation: tokens are generated after one prompt"),
        ({"prompt": "x"}, "generation: a prompt of text needs the model's tokenizer"),
        ({"prompt": "x", "tokenizer": "t.json"}, "generation.tokenizer: t.json does not exist"),
    ):
        wrong = document | {"generation": {"new_tokens": 4, **given}}
        with pytest.raises(UsageError) as caught:
            parse_config(json.dumps(wrong), "c.json")
        assert problem in str(caught.value)
    document["method"] = "decode"
    with pytest.raises(UsageError, match="names its own methods and inputs"):
        parse_config(json.dumps(document), "c.json")
    document |= {"method": None, "generation": {"new_tokens": 1}}
    with pytest.raises(UsageError, match=r"generation\.new_tokens"):
        parse_config(json.dumps(document), "c.json")
