"""Measure a model, split its time by operator, and say what that means.

MODEL is a name from `etprof models`, your own (net.py:Net, a torch.nn.Module; or net.pt2 of
torch.export.save), or a program that is already exported (FILE.pte). The model is exported if
needed, timed in several process launches without the event tracer, launched again with it for the
per-operator breakdown, and analysed. On a CPU with SME2, launches with SME2 on and off are
interleaved. Everything is kept in out_<model>/runs/<platform>.

--against measures a second program and compares it, with the launches of both interleaved: MODEL is
the baseline, the other the candidate. NAME:PRECISION selects a model's precision, so that
`toy_cnn:fp16 --against toy_cnn:int8` shows the effect of quantisation. That run is kept in
out_<model>/runs/<platform>_against_<program>.

--target emulator runs real SME2 microkernels on any machine (`etprof emulator setup` once): which
run, how often, and what they compute. Emulated times mean nothing and are not shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from etprof.base.errors import UsageError
from etprof.base.limits import (
    LARGEST_SEED,
    MOST_INFERENCES,
    MOST_LAUNCHES,
    MOST_PROMPT,
    REPETITIONS,
    USUAL_BLOCKS,
    USUAL_INFERENCES,
    USUAL_OPERATOR_LAUNCHES,
    USUAL_SECONDS,
    USUAL_TIMEOUT_S,
    USUAL_WARMUP,
    WARMUP_REPETITIONS,
    VectorBits,
)
from etprof.cli.export import given_model
from etprof.cli.flags import (
    ALLOW_INACCURATE,
    FULL,
    INPUT,
    JSON,
    NO_WAIT,
    SERIAL,
    THREADS,
    add_flags,
    choice_list,
    path_list,
    seconds,
    whole_number,
)
from etprof.cli.measuring import listening, report_run
from etprof.targets.registry import KINDS, LOCAL, TARGETS, kind_of, proves_times

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from etprof.config import Config, GenerationConfig, TargetConfig
    from etprof.run.delegation import DelegationReport
    from etprof.targets import Target

_LONGEST_NAME = 40
_MOST_EARLIER = 10
"""Earlier runs that are looked at, the newest first."""
_SIDES = ("baseline", "candidate")
EXAMPLES = """\
examples:
  etprof profile toy_cnn
  etprof profile toy_cnn --dtype fp32 --threads 1
  etprof profile toy_cnn --dtype fp16 --target emulator
  etprof profile toy_cnn --target emulator --sme-vector-bits 128,256,512
  etprof profile toy_cnn --target emulator --instructions --full
  etprof profile path/to/net.py:Net --input 1x3x224x224 --input int64:1x17
  etprof profile net.pt2 --threads 1
  etprof profile my_model.pte --inputs image.bin --blocks 20
  etprof profile toy_cnn:fp16 --against toy_cnn:int8
  etprof profile before.pte --against after.pte --inputs image.bin
  etprof profile decoder --dtype fp32 --generate 64 --prompt-tokens 1,2,3
  etprof profile llm.pte --generate 64 --tokenizer tokenizer.json --prompt "Once upon a time"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("name", str, "MODEL[:PRECISION]|FILE.pte",
         "a model, as `etprof export` takes it, or an exported program", {"nargs": "?"}),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        ("--dtype", str, "PRECISION",
         "precision of the export: fp16 (default), fp32, int8, …; `etprof export --help` lists all"),
        THREADS,
        ("--target", KINDS, "", "where to run: local, which is this machine (default), emulator, android, …",
         {"default": LOCAL}),
        ("--against", str, "MODEL[:PRECISION]|FILE.pte",
         "the candidate: measured interleaved with MODEL, the baseline, and compared with it"),
        FULL,
    )  # fmt: skip
    _add_program_flags(parser)
    _add_measurement_flags(parser)
    _add_target_flags(parser)
    _add_generation_flags(parser)
    add_flags(
        parser.add_argument_group("output"),
        ("--out", Path, "DIR", "run directory (default: out_<model>/runs/<platform>)"),
        JSON,
    )  # fmt: skip


def _add_program_flags(parser: argparse.ArgumentParser) -> None:
    from etprof.backends.registry import BY_NAME, DEFAULT

    add_flags(
        parser.add_argument_group("model and program"),
        ("--model --model-name", str, "MODEL",
         "MODEL as a flag: a name, path/to/file.py:Net, or FILE.pt2"),
        INPUT,
        ("--backend", tuple(BY_NAME), "",
         f"delegate of the export (default {DEFAULT}); portable for none"),
        ("--export", bool, "", "export again, even if the program is up to date"),
        ("--inputs", path_list, "A.bin,B.bin",
         "input tensors, .npy or raw little-endian (default: the export's example inputs)",
         {"default": ()}),
        ("--data", Path, "FILE.ptd", "external constants of the program"),
        ("--method", str, "", "method to run (default: forward, or the program's first)"),
        ("--etrecord", Path, "FILE",
         "names the modules of a program that etprof did not export"),
        ALLOW_INACCURATE,
    )  # fmt: skip


def _add_measurement_flags(parser: argparse.ArgumentParser) -> None:
    add_flags(
        parser.add_argument_group("measuring"),
        ("--blocks", whole_number(1, MOST_LAUNCHES), "N",
         f"process launches of each SME mode (default {USUAL_BLOCKS}; no 95 %% interval below 6)"),
        ("--operator-launches", whole_number(1, MOST_LAUNCHES), "N",
         f"process launches of each per-operator breakdown (default {USUAL_OPERATOR_LAUNCHES})"),
        ("--iterations", whole_number(1, MOST_INFERENCES), "N",
         f"minimum number of inferences in each launch (default {USUAL_INFERENCES}; generations: {REPETITIONS})"),
        ("--min-seconds", seconds, "S", f"minimum measurement time of each launch (default {USUAL_SECONDS} s)"),
        ("--warmup", whole_number(0, MOST_INFERENCES), "N",
         f"warm-up inferences (default {USUAL_WARMUP}; generations: {WARMUP_REPETITIONS})"),
        ("--warmup-seconds", seconds, "S", "minimum warm-up time"),
        ("--warmup-steady", bool, "", "warm up until latencies settle, for at most 10 s more"),
        ("--cold-inputs", bool, "", "evict the inputs from the caches before each inference"),
        ("--seed", whole_number(0, LARGEST_SEED), "N", "seed of the inputs and the block order (default 0)"),
        ("--timeout", seconds, "S", f"end a launch that takes longer (default {USUAL_TIMEOUT_S} s)"),
    )  # fmt: skip


def _add_target_flags(parser: argparse.ArgumentParser) -> None:
    add_flags(
        parser.add_argument_group("target"),
        SERIAL,
        ("--runner", Path, "FILE", "a runner that you built (default: the installed one; Android has none)"),
        ("--trace-runner", Path, "FILE",
         "a runner built to count microkernels (default: the installed one; Android has none)"),
        ("--debugger", str, "NAME",
         "count microkernels with gdb or lldb instead, in a slower launch of its own; not on Android"),
        ("--sme-vector-bits", choice_list(*get_args(VectorBits)), "N,…",
         "emulator: streaming vector length of 128, 256 or 512 bits (default 512), or several", {"default": ()}),
        ("--instructions", bool, "",
         "emulator: also count each operator's instructions, with one thread"),
        NO_WAIT,
    )  # fmt: skip


def _add_generation_flags(parser: argparse.ArgumentParser) -> None:
    add_flags(
        parser.add_argument_group("language models: an iteration generates tokens, greedily"),
        ("--generate", whole_number(2, MOST_INFERENCES), "N", "new tokens, at least 2"),
        ("--prompt-tokens", str, "1,2,3|FILE", "token ids of the prompt, or a file of them"),
        ("--prompt-length", whole_number(1, MOST_PROMPT), "N",
         "a prompt of N arbitrary tokens, where only speed matters"),
        ("--prompt", str, "TEXT", "the prompt as text; needs --tokenizer"),
        ("--tokenizer", Path, "FILE", "the model's tokenizer, to show the text that it generates"),
        ("--prefill-method", str, "NAME", "method that reads the prompt (default prefill)"),
        ("--decode-method", str, "NAME", "method that adds one token (default decode, else forward)"),
    )  # fmt: skip


def _refuse_flags_without_effect(arguments: argparse.Namespace) -> None:
    """Raises UsageError for a flag that would change nothing: its user expects otherwise."""
    from etprof.export.request import split_precision

    of_export = {"--dtype": arguments.dtype, "--backend": arguments.backend}
    of_export["--export"] = arguments.export or None
    of_export["--input"] = arguments.example_inputs or None
    export_flags = [flag for flag, value in of_export.items() if value is not None]
    named = [name for name in (arguments.model, arguments.against) if name is not None]
    if export_flags and all(name.endswith(".pte") for name in named):
        flag = export_flags[0]
        files = "; --inputs takes its files" if flag == "--input" else ""
        raise UsageError(f"{flag} is for a model's name; {named[0]} is already exported{files}")
    if arguments.dtype is not None and all(split_precision(name)[1] for name in named):
        raise UsageError(f"--dtype has no effect: {named[0]} names its precision; leave one out")
    accepted_options = kind_of(arguments.target).takes
    if arguments.sme_vector_bits and not kind_of(arguments.target).has_vector_lengths:
        target_names = " or ".join(kind.name for kind in TARGETS if kind.has_vector_lengths)
        raise UsageError(f"--sme-vector-bits is for --target {target_names}; leave it out")
    if arguments.instructions and not kind_of(arguments.target).policy.proves_instructions:
        target_names = " or ".join(kind.name for kind in TARGETS if kind.policy.proves_instructions)
        raise UsageError(f"--instructions is for --target {target_names}; leave it out")
    for name in ("serial", "trace_runner", "debugger"):
        if getattr(arguments, name) is not None and name not in accepted_options:
            target_names = " or ".join(kind.name for kind in TARGETS if name in kind.takes)
            raise UsageError(
                f"--{name.replace('_', '-')} is for --target {target_names}; leave it out"
            )


def run(arguments: argparse.Namespace) -> int:
    """Exports, measures, analyses, reports."""
    from etprof.cli.progress import say
    from etprof.measuring.configured import measure_config
    from etprof.measuring.plan import find_runner, make_target

    arguments.model = given_model(arguments)
    _refuse_flags_without_effect(arguments)
    generation = _find_generation(arguments)
    way_out = kind_of(arguments.target).runner_hint
    find_runner(arguments.trace_runner, None, "--trace-runner", way_out)
    runner = find_runner(arguments.runner, None, "--runner", way_out)
    target = make_target(_target_config(arguments), runner, "--target")
    # What it needs is checked before anything is exported.
    target.describe()
    _check_files(arguments)
    programs = [_find_program(arguments.model, arguments)]
    if arguments.against is not None:
        programs.append(_find_program(arguments.against, arguments))
    config = _config(arguments, programs, generation, target)
    recorded = {"": _read_etrecord(arguments.etrecord, config.model)}
    recorded |= {
        name: _read_etrecord(None, program.model) for name, program in config.programs.items()
    }
    reports = {name: report for name, report in recorded.items() if report is not None}
    chosen_threads = target.default_threads() if arguments.threads is None else 1
    with listening(arguments) as listener:
        measured = measure_config(config, target, listener, delegations=reports)
    if chosen_threads > 1:
        say(f"Measured with {chosen_threads} threads, one per core; --threads sets another number")
    code = report_run(config.folder, arguments, measured)
    faster = describe_faster_threads(config.folder, chosen_threads) if chosen_threads > 1 else None
    if faster is not None:
        say(faster)
    return code


def _check_files(arguments: argparse.Namespace) -> None:
    """Raises before anything is exported for a file or a model that is named and not there."""
    from etprof.model_registry.registry import find_model
    from etprof.run.program import FILES_ONLY, check_file, describe_program

    for name in filter(None, (arguments.model, arguments.against)):
        if name.endswith(".pte"):
            describe_program(Path(name))
        else:
            from etprof.export.request import split_precision

            find_model(split_precision(name)[0])
    for path in filter(None, (*arguments.inputs, arguments.data)):
        check_file(path, FILES_ONLY)
    if arguments.etrecord is not None:
        check_file(arguments.etrecord, "check the path after --etrecord")


def describe_faster_threads(folder: Path, threads: int) -> str | None:
    """Says that fewer threads were faster in an earlier run of this program; None where none were."""
    from etprof.base.units import format_duration

    content = _model_content(folder)
    latest = min((median for _, median in _medians_of(folder, content)), default=0.0)
    for earlier in sorted(folder.parent.glob(f"{folder.name}_*"), reverse=True)[:_MOST_EARLIER]:
        for count, median in _medians_of(earlier, content):
            if count < threads and median < latest:
                unit = "thread was" if count == 1 else "threads were"
                return (
                    f"{count} {unit} faster: {format_duration(median)} instead of "
                    f"{format_duration(latest)} ({earlier})"
                )
    return None


def _model_content(folder: Path) -> str | None:
    """Returns the hash of the program that a run measured; None where nobody knows."""
    from etprof.base.errors import EtprofError
    from etprof.run.manifest import load_manifest

    try:
        manifest = load_manifest(folder)
    except EtprofError:
        return None
    return manifest.model.content if manifest else None


def _medians_of(folder: Path, content: str | None) -> list[tuple[int, float]]:
    """Returns threads and median latency of each experiment; none of another program's run."""
    from etprof.base.errors import EtprofError
    from etprof.run.directory import load_metrics
    from etprof.statistics.summary import summarise_blocks

    if content is None or _model_content(folder) != content:
        return []
    try:
        metrics = load_metrics(folder)
    except EtprofError:
        return []
    if metrics is None or not metrics.times_are_meaningful:
        return []
    return [
        (experiment.threads, summarise_blocks([b.latency_ns for b in experiment.blocks]).median)
        for experiment in metrics.experiments.values()
        if experiment.threads and experiment.blocks
    ]


def _find_generation(arguments: argparse.Namespace) -> GenerationConfig | None:
    """Returns what to generate; raises UsageError for flags that do not belong together."""
    from etprof.config import GenerationConfig
    from etprof.run.generation import parse_ids, plan_generation

    flag_names = (
        "prompt_tokens", "prompt_length", "prompt", "tokenizer", "prefill_method", "decode_method",
    )  # fmt: skip
    options = {name: getattr(arguments, name) for name in flag_names}
    if arguments.generate is None:
        for name, value in options.items():
            if value is not None:
                raise UsageError(f"--{name.replace('_', '-')} is given without --generate N")
        return None
    if arguments.method is not None or arguments.inputs:
        msg = "--generate takes its methods from --prefill-method and --decode-method, its inputs "
        raise UsageError(msg + "from the prompt; leave out --method and --inputs")
    if not any(options[name] for name in ("prompt_tokens", "prompt_length", "prompt")):
        raise UsageError(
            "--generate reads a prompt first: give --prompt-length N, of arbitrary tokens, where only "
            "speed matters, --prompt-tokens 1,2,3, or --prompt TEXT with --tokenizer FILE"
        )
    tokens = options["prompt_tokens"]
    if tokens is not None:
        options["prompt_tokens"] = parse_ids(tokens) or Path(tokens)
    # Says in words of flags what is wrong.
    plan_generation(new_tokens=arguments.generate, **options)
    return GenerationConfig(new_tokens=arguments.generate, **options)


def _target_config(arguments: argparse.Namespace) -> TargetConfig:
    from etprof.config import TargetConfig

    return TargetConfig(
        kind=arguments.target,
        serial=arguments.serial,
        trace_runner=arguments.trace_runner,
        debugger=arguments.debugger,
    )


def _config(
    arguments: argparse.Namespace,
    programs: Sequence[Path],
    generation: GenerationConfig | None,
    target: Target,
) -> Config:
    """Returns the config that says what the flags say: an experiment for each program and mode."""
    from etprof.config import Config
    from etprof.run.directory import runs_folder
    from etprof.run.program import describe_program

    counts = {"iterations": arguments.iterations, "warmup": arguments.warmup}
    usual = {"iterations": USUAL_INFERENCES, "warmup": USUAL_WARMUP}
    if generation is not None:
        usual = {"iterations": REPETITIONS, "warmup": WARMUP_REPETITIONS}
    if proves_times(target.platform):
        counts = {name: usual[name] if n is None else n for name, n in counts.items()}
    experiment = {
        "threads": arguments.threads or target.default_threads(),
        "runner": arguments.runner,
        "warmup_seconds": arguments.warmup_seconds,
        "warmup_steady": arguments.warmup_steady or None,
        "cold_inputs": arguments.cold_inputs or None,
        **counts,
    }
    measurement = {
        "blocks": arguments.blocks,
        "operator_launches": arguments.operator_launches,
        "min_seconds": arguments.min_seconds,
        "seed": arguments.seed,
        "timeout_s": arguments.timeout,
        "allow_inaccurate": arguments.allow_inaccurate or None,
        "instructions": arguments.instructions or None,
    }
    described = [describe_program(program) for program in programs]
    names = name_programs([description.label for description in described])
    against = "".join(f"_against_{description.label}" for description in described[1:])
    folder = runs_folder(described[0].name, f"{target.platform}{against}")
    compared = zip(names[1:], programs[1:], strict=True)
    shared = {"inputs": arguments.inputs, "method": arguments.method}
    fields: dict[str, Any] = {
        "model": programs[0],
        "output_root": arguments.out or folder,
        "programs": {name: _without_none({"model": path, **shared}) for name, path in compared},
        "inputs": arguments.inputs,
        "data": arguments.data,
        "method": arguments.method,
        "target": _without_none(_target_config(arguments).model_dump(exclude_unset=True)),
        "generation": generation,
        "experiments": [
            _without_none({**named, **experiment})
            for named in _name_experiments(target, arguments.sme_vector_bits, names)
        ],
        "measurement": _without_none(measurement),
    }
    return Config.model_validate(_without_none(fields))


def name_programs(labels: Sequence[str]) -> list[str]:
    """Names programs by what differs in their labels, such as fp16 and int8; equal ones by their sides.

    >>> name_programs(["toy_cnn_xnnpack_fp16", "toy_cnn_xnnpack_int8"])
    ['fp16', 'int8']
    """
    if len(labels) == 1:
        return [""]
    if len(set(labels)) == 1:
        return list(_SIDES)
    split_labels = [label.split("_") for label in labels]
    common = 0
    while len({tuple(pieces[: common + 1]) for pieces in split_labels}) == 1:
        common += 1
    if any(len(pieces) == common for pieces in split_labels):
        # One is a prefix of the other, and is named by the last word that they share.
        common -= 1
    shorter = ["_".join(pieces[common:])[:_LONGEST_NAME] for pieces in split_labels]
    return shorter if all(shorter) and len(set(shorter)) > 1 else list(_SIDES)


def _name_experiments(
    target: Target, lengths: Sequence[int], programs: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Yields one for each program and SME mode, and for each vector length that a mode can have.

    The first program is the run's model, whatever the experiments' names call it.
    """
    from etprof.base.records import SME_ON

    for mode in target.sme_modes():
        with_lengths = lengths if mode in SME_ON else ()
        for bits in with_lengths or (None,):
            length_suffix = f"_{bits}" if len(with_lengths) > 1 else ""
            for number, program in enumerate(programs):
                name = "_".join(filter(None, (f"{target.platform}_{mode}{length_suffix}", program)))
                named: dict[str, object] = {"name": name, "sme": mode}
                named |= {"program": program} if number else {}
                yield named if bits is None else {**named, "sme_vector_bits": bits}


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out what was not set: the config has its defaults."""
    return {name: value for name, value in fields.items() if value is not None}


def _read_etrecord(explicit: Path | None, program: Path) -> DelegationReport | None:
    """Returns the delegation report of a program that came without one but with an ETRecord.

    One that merely lies beside the program may be anyone's, and is not opened. It is read before
    anything is measured: files that do not belong together are told at once.
    """
    from etprof.cli.progress import say
    from etprof.etrecord.program import describe_program, find_etrecord, is_own
    from etprof.run.directory import DELEGATION_REPORT
    from etprof.run.program import find_descriptions

    if explicit is not None:
        say(f"Reading {explicit}")
        return describe_program(program, explicit)
    etrecord = find_etrecord(program)
    if etrecord is None or DELEGATION_REPORT in find_descriptions(program):
        return None
    if not is_own(program, etrecord):
        say(f"{etrecord} was not opened; --etrecord {etrecord} reads the modules' names from it")
        return None
    say(f"Reading {etrecord}")
    return describe_program(program, etrecord)


def _find_program(name: str, arguments: argparse.Namespace) -> Path:
    """Returns the program in a file, or exports the model of that name."""
    if name.endswith(".pte"):
        return Path(name)
    from etprof.cli.export import export_named

    return export_named(
        name,
        precision=arguments.dtype,
        backend=arguments.backend,
        allow_inaccurate=arguments.allow_inaccurate,
        way_out=None if arguments.export else "; --export exports it again",
        example_inputs=tuple(arguments.example_inputs),
    )
