"""Keep measurements in a history, and find regressions in it.

  etprof history add RUN_DIR…         add run directories; the same one twice changes nothing
  etprof history list                 the newest runs
  etprof history show RUN             everything about one run
  etprof history check --baseline B   is the newest run worse? The exit code is for CI
  etprof history pin NAME RUN         call a run a baseline; without RUN, list the baselines
  etprof history changes              where levels changed over the history
  etprof history noise                what repeated runs of the same thing differ by
  etprof history export FILE          everything as JSON, Parquet, or PyTorch-HUD records
  etprof history import FILE          add the runs of a JSON or Parquet export

A history is a SQLite file (--store FILE, by default $ETPROF_HISTORY, then ./etprof_history.sqlite)
or a PostgreSQL database (--store postgresql://user@host/database; keep the password in PGPASSWORD
or ~/.pgpass). RUN is a number from `list`, a run directory, or the name of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.argument_types import whole_number

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from etprof.history.check import CheckRequest
    from etprof.history.selection import Filters
    from etprof.history.store import Store

CHECK_TEXT = """\
Compares the newest run of each series (model, precision, backend, method, device, SME mode and
threads) with a baseline:

  NAME          the run pinned under that name (`etprof history pin`)
  branch:NAME   the runs of the newest commit on that branch
  window:N      the N runs before it on its own branch

A metric is a regression only if the whole 95 % interval of its change is worse than the threshold.
The interval covers what blocks say and what repeated runs of this device differ by.
"""
CHECK_EPILOG = """\
exit codes: 0 no regression (inconclusive is said, but does not fail), 1 a regression or a run that
failed, 2 a flag or name that cannot be used, 4 no such history, 8 a store that cannot be used

examples:
  etprof history check --baseline branch:main --format markdown --out comment.md
  etprof history check --baseline window:10 --threshold 3 --threshold load_ns=20
  etprof history check --baseline release --run out_toy_cnn/runs/linux --metric latency_ns
"""
FORMATS = ("text", "markdown", "json")
_MOST_LISTED = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the actions and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_reading_actions(actions)
    _add_check(actions)
    add = _action(actions, "add", "add run directories")
    add.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    add.add_argument(
        "--device",
        metavar="NAME",
        help="call the device this; tells computers apart that have the same CPU and system",
    )
    pin = _action(actions, "pin", "call a run a baseline, list baselines, or remove one")
    pin.add_argument("name", nargs="?", metavar="NAME")
    pin.add_argument("run_text", nargs="?", metavar="RUN")
    pin.add_argument("--remove", action="store_true", help="forget the baseline NAME")
    export = _action(actions, "export", "write runs to a file", filters=True)
    export.add_argument("file", type=Path, metavar="FILE")
    export.add_argument(
        "--format",
        choices=("json", "parquet", "hud"),
        help="default: what the name of FILE ends in; hud: records of PyTorch's dashboard, v3",
    )
    _action(actions, "import", "add the runs of an export").add_argument(
        "file", type=Path, metavar="FILE"
    )


def _add_reading_actions(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    listing = _action(actions, "list", "the newest runs", filters=True)
    listing.add_argument(
        "--limit",
        type=whole_number(1, _MOST_LISTED),
        default=20,
        metavar="N",
        help="runs (default 20)",
    )
    listing.add_argument("--failed", action="store_true", help="failed runs only")
    show = _action(actions, "show", "everything about one run")
    show.add_argument("run_text", metavar="RUN")
    changes = _action(actions, "changes", "where levels changed", filters=True)
    changes.add_argument("--metric", default="latency_ns", metavar="NAME")
    noise = _action(actions, "noise", "noise floor of each device, from repeated runs")
    noise.add_argument("--json", action="store_true", help="print the same data as JSON")


def _add_check(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = _action(actions, "check", "is the newest run worse than a baseline?", filters=True)
    check.description, check.epilog = CHECK_TEXT, CHECK_EPILOG
    check.add_argument(
        "--baseline", required=True, metavar="B", help="NAME, branch:NAME or window:N"
    )
    check.add_argument(
        "--run",
        action="append",
        default=[],
        dest="runs",
        metavar="RUN",
        help="check this run instead of the newest ones; may be given again",
    )
    check.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="[METRIC=]PERCENT",
        help="change that matters (default 5), of all metrics or of one; may be given again",
    )
    check.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME",
        help="check this metric only; may be given again; `all` for every metric",
    )
    check.add_argument("--format", choices=FORMATS, default="text")
    check.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    *,
    filters: bool = False,
) -> argparse.ArgumentParser:
    """Adds an action with the flags that all have, and with those that choose runs."""
    from argparse import RawDescriptionHelpFormatter

    parser = actions.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--store", metavar="FILE|URL", help="the history")
    if filters:
        for flag in ("model", "precision", "backend", "device", "branch", "commit"):
            parser.add_argument(f"--{flag}", metavar=flag.upper(), help=f"only this {flag}")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Opens the history and does what was asked."""
    from etprof.history.store import open_store

    creates = arguments.action in ("add", "import")
    with open_store(arguments.store, create=creates) as store:
        return _ACTIONS[arguments.action](store, arguments)


def _add(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    return commands.add(store, arguments.run_dirs, arguments.device)


def _list(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    return commands.list_runs(store, _filters(arguments), arguments.limit)


def _show(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    return commands.show(store, arguments.run_text)


def _check(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    return commands.check(store, _check_request(arguments), arguments.format, arguments.out)


def _changes(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    _check_metric(arguments.metric, "--metric")
    return commands.changes(store, arguments.metric, _filters(arguments))


def _noise(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    return commands.noise(store, as_json=arguments.json)


def _export(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    kind = arguments.format or _format_of(arguments.file)
    return commands.export(store, arguments.file, kind, _filters(arguments))


def _import(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.history import commands

    return commands.import_runs(store, arguments.file)


def _pin(store: Store, arguments: argparse.Namespace) -> int:
    from etprof.base.errors import UsageError
    from etprof.history import commands

    if arguments.name is None:
        return commands.list_baselines(store)
    if arguments.remove:
        return commands.unpin(store, arguments.name)
    if arguments.run_text is None:
        msg = f"which run is {arguments.name} to be? `etprof history pin {arguments.name} RUN`"
        raise UsageError(msg)
    return commands.pin(store, arguments.name, arguments.run_text)


def _filters(arguments: argparse.Namespace) -> Filters:
    from etprof.history.schema import FAILED
    from etprof.history.selection import Filters

    return Filters(
        model=arguments.model,
        precision=arguments.precision,
        backend=arguments.backend,
        device=arguments.device,
        git_branch=arguments.branch,
        git_commit=arguments.commit,
        status=FAILED if getattr(arguments, "failed", False) else None,
    )


def _check_request(arguments: argparse.Namespace) -> CheckRequest:
    from etprof.history.check import CHECKED, CheckRequest
    from etprof.history.gate import DEFAULT_THRESHOLD
    from etprof.history.metric_names import METRICS

    thresholds = dict(_threshold(text) for text in arguments.threshold)
    metrics = tuple(METRICS) if "all" in arguments.metric else tuple(arguments.metric)
    for name in metrics:
        _check_metric(name, "--metric")
    return CheckRequest(
        baseline=arguments.baseline,
        runs=tuple(arguments.runs),
        filters=_filters(arguments),
        metrics=metrics or CHECKED,
        threshold=thresholds.pop(None, DEFAULT_THRESHOLD),
        thresholds={name: value for name, value in thresholds.items() if name is not None},
    )


def _threshold(text: str) -> tuple[str | None, float]:
    """Reads `5` or `load_ns=20`, in per cent."""
    from etprof.base.errors import UsageError

    name, _, number = text.rpartition("=")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    if not 0 < percent < 1000:
        msg = f"--threshold {text}: give per cent above 0, such as 5 or load_ns=20"
        raise UsageError(msg)
    if name:
        _check_metric(name, "--threshold")
    return name or None, percent / 100


def _check_metric(name: str, flag: str) -> None:
    from etprof.base.errors import UsageError
    from etprof.history.metric_names import METRICS

    if name not in METRICS:
        msg = f"{flag} {name}: no such metric; there are {', '.join(METRICS)}"
        raise UsageError(msg)


def _format_of(path: Path) -> str:
    from etprof.base.errors import UsageError

    kind = path.suffix.removeprefix(".").lower()
    if kind not in ("json", "parquet"):
        msg = f"{path}: call it .json or .parquet, or say --format json, parquet or hud"
        raise UsageError(msg)
    return kind


_ACTIONS: dict[str, Callable[[Store, argparse.Namespace], int]] = {
    "add": _add,
    "list": _list,
    "show": _show,
    "check": _check,
    "pin": _pin,
    "changes": _changes,
    "noise": _noise,
    "export": _export,
    "import": _import,
}
