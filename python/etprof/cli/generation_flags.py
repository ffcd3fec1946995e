"""The flags of `etprof profile` for language models, and what they end in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError
from etprof.base.limits import MOST_INFERENCES
from etprof.cli.flags import add_flags, whole_number

if TYPE_CHECKING:
    import argparse

    from etprof.analysis.assessment import Assessment
    from etprof.config import GenerationConfig


def add_generation_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what to generate, for language models."""
    add_flags(
        parser.add_argument_group("language models: an iteration generates tokens, greedily"),
        ("--generate", whole_number(2, MOST_INFERENCES), "N", "new tokens, at least 2"),
        ("--prompt-tokens", str, "1,2,3|FILE", "token ids of the prompt, or a file of them"),
        ("--prompt", str, "TEXT", "the prompt as text; needs --tokenizer"),
        ("--tokenizer", Path, "FILE", "the model's own, to show what it says"),
        ("--prefill-method", str, "NAME", "reads the prompt (default prefill)"),
        ("--decode-method", str, "NAME", "adds one token (default decode, else forward)"),
    )


def find_generation(arguments: argparse.Namespace) -> GenerationConfig | None:
    """Returns what to generate; raises UsageError for flags that do not belong together."""
    from etprof.config import GenerationConfig
    from etprof.run.generation import parse_ids, plan_generation

    beside = ("prompt_tokens", "prompt", "tokenizer", "prefill_method", "decode_method")
    given = {name: getattr(arguments, name) for name in beside}
    if arguments.generate is None:
        for name, value in given.items():
            if value is not None:
                msg = f"--{name.replace('_', '-')} is given without --generate N"
                raise UsageError(msg)
        return None
    if arguments.method is not None or arguments.inputs:
        msg = "--generate takes its methods from --prefill-method and --decode-method, its inputs "
        raise UsageError(msg + "from the prompt; leave out --method and --inputs")
    tokens = given["prompt_tokens"]
    if tokens is not None:
        given["prompt_tokens"] = parse_ids(tokens) or Path(tokens)
    # Says in words of flags what is wrong.
    plan_generation(new_tokens=arguments.generate, **given)
    return GenerationConfig(new_tokens=arguments.generate, **given)


def show_generated(assessment: Assessment) -> None:
    """Shows what each SME mode generated, where times mean nothing, and whether it is the same."""
    from rich.console import Console

    from etprof.tables.measurement import generation_sections
    from etprof.views.terminal import terminal_sections

    run, console = assessment.run, Console()
    if run.is_timed:
        return
    for section in generation_sections(run.experiments, is_timed=False):
        console.print(section.title, markup=False)
        console.print(*terminal_sections([section], top=1), sep="\n")
    for comparison in assessment.comparisons:
        if comparison.tokens is not None:
            console.print(f"{comparison.name}: {comparison.tokens}", markup=False)
