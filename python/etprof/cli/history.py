"""Keep measurements in a history, and find regressions in it.

  etprof history add RUN_DIR…         add run directories; the same one twice changes nothing
  etprof history list                 the newest runs
  etprof history show RUN             everything about one run
  etprof history check                is the newest run worse? The exit code is for CI
  etprof history accept RUN --why TEXT
                                      accept the level of this run although it is worse
  etprof history pin NAME RUN         make a run a baseline; without RUN, list the baselines
  etprof history changes              where levels changed over the history
  etprof history noise                what runs of one series differ by on each device
  etprof history export FILE          everything as JSON, Parquet, or PyTorch-HUD records
  etprof history import FILE          add the runs of a JSON or Parquet export

A history is a SQLite file (--store FILE, by default $ETPROF_HISTORY, then ./etprof_history.sqlite)
or a PostgreSQL database (--store postgresql://user@host/database; keep the password in PGPASSWORD
or ~/.pgpass). RUN is a number from `list`, a run directory, or the name of one.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etprof.base.errors import EtprofError, OutputError, UsageError
from etprof.base.process import user_name
from etprof.base.text import clean, command_line
from etprof.base.units import count_of, format_count
from etprof.cli.flags import FULL, JSON, MANY, STORE, add_flags, whole_number
from etprof.cli.output import answer, show, show_answer, show_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from sqlalchemy.orm import Session

    from etprof.history.check import CheckRequest
    from etprof.history.store import Store
    from etprof.tables.table import Table

CHECK_TEXT = """\
Compares the newest run of each series (model, precision, backend, method, device, SME mode and
threads) with a baseline:

  NAME          the run pinned under that name (`etprof history pin`)
  branch:NAME   the runs of the newest commit on that branch
  window:N      the N runs before it on its own branch

The last two leave out runs of the candidate's own commit, and runs that a check called worse until
they are accepted (`etprof history accept`): a red build stays red when it is run again. Values
without noise (operators on SME, delegate calls, sizes) are compared exactly with the newest run that
was not worse. A metric is a regression if its change exceeds both the threshold and the variation
between runs of its series; false alarms are at most 5 % over all comparisons of a check. A drift is
a gradual change over the newest commits that no single step shows.
"""
CHECK_EPILOG = """\
exit codes: 0 no regression (an inconclusive result is reported but does not fail), 1 a regression,
a drift or a failed run, 2 a flag or name that cannot be used, 4 no such history, 8 a store that cannot be
used, 9 a first run: there is nothing to compare with yet

examples:
  etprof history check
  etprof history check --baseline branch:main --format markdown --out comment.md
  etprof history check --exact-work --allow-first-run
  etprof history check --baseline window:10 --threshold 3 --threshold load_ns=20
  etprof history check --baseline release --run out_toy_cnn/runs/linux --metric latency_ns
"""
FORMATS = ("text", "markdown", "json")
_FILTERS = ("model", "precision", "backend", "device", "branch", "commit")
_MOST_LISTED = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the actions and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_flags(
        _action(actions, "add", _add, "add run directories"),
        ("run_dirs", Path, "RUN_DIR", "", {"nargs": "+"}),
        ("--device", str, "NAME",
         "call the device this; tells computers apart that have the same CPU and system"),
    )  # fmt: skip
    limit = whole_number(1, _MOST_LISTED)
    add_flags(
        _action(actions, "list", _list, "the newest runs", filters=True),
        ("--limit", limit, "N", "runs (default %(default)s)", {"default": 20}),
        ("--failed", bool, "", "failed runs only"),
    )
    of_one = _action(actions, "show", _show, "everything about one run")
    add_flags(of_one, ("run_text", str, "RUN", ""))
    _add_check(actions)
    add_flags(
        _action(actions, "pin", _pin, "call a run a baseline, list baselines, or remove one"),
        ("name", str, "NAME", "", {"nargs": "?"}),
        ("run_text", str, "RUN", "", {"nargs": "?"}),
        ("--remove", bool, "", "forget the baseline NAME"),
    )
    add_flags(
        _action(actions, "accept", _accept, "accept the level of a run although it is worse, or list the accepted runs"),
        ("run_text", str, "RUN", "", {"nargs": "?"}),
        ("--why", str, "TEXT", "the reason, which the history keeps"),
        ("--by", str, "NAME", "who accepts it (default: the user's name)"),
    )  # fmt: skip
    changes = _action(actions, "changes", _changes, "where levels changed", filters=True)
    add_flags(
        changes,
        ("--metric", str, "NAME", "", {"default": "latency_ns"}),
        ("--fail", bool, "", "exit code 1 where a series' last change is for the worse and neither accepted nor pinned since"),
    )  # fmt: skip
    _action(actions, "noise", _noise, "what runs of one series differ by on each device")
    add_flags(
        _action(actions, "export", _export, "write runs to a file", filters=True),
        ("file", Path, "FILE", ""),
        ("--format", ("json", "parquet", "hud"), "",
         "default: what the name of FILE ends in; hud: records of PyTorch's dashboard, v3"),
    )  # fmt: skip
    imports = _action(actions, "import", _import, "add the runs of an export")
    add_flags(imports, ("file", Path, "FILE", ""))


def _add_check(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = _action(
        actions, "check", _check, "is the newest run worse than a baseline?", filters=True
    )
    check.description, check.epilog = CHECK_TEXT, CHECK_EPILOG
    add_flags(
        check,
        ("--baseline", str, "B", "NAME, branch:NAME or window:N (default %(default)s)", {"default": "window:7"}),
        ("--run", str, "RUN", "check this run instead of the newest ones; may be given again",
         {**MANY, "dest": "runs"}),
        ("--threshold", str, "[METRIC=]PERCENT",
         "change that matters (default 5; 1 for sizes that never vary); may be given again", MANY),
        ("--metric", str, "NAME",
         "check this metric only; may be given again; `all` for every metric", MANY),
        ("--exact-work", bool, "",
         "judge exact work too, by operator: one step or byte more fails; emulated runs have it"),
        ("--allow-first-run", bool, "", "exit code 0 where there is nothing to compare with yet"),
        ("--format", FORMATS, "", "", {"default": "text"}),
        ("--out", Path, "FILE", "write there instead of printing"),
    )  # fmt: skip


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    work: Callable[[argparse.Namespace], int],
    text: str,
    *,
    filters: bool = False,
) -> argparse.ArgumentParser:
    """Adds an action with the flags that all have, and with those that choose runs."""
    parser = actions.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
    )
    parser.set_defaults(work=work)
    if filters:
        add_flags(
            parser.add_argument_group("which runs"),
            *((f"--{name}", str, name.upper(), f"only this {name}") for name in _FILTERS),
        )
    add_flags(parser.add_argument_group("store and output"), STORE, FULL, JSON)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Does what was asked; each action opens the history itself."""
    code: int = arguments.work(arguments)
    return code


def _open(arguments: argparse.Namespace, *, create: bool = False) -> Store:
    from etprof.history.store import open_store

    return open_store(arguments.store, create=create)


def _add(arguments: argparse.Namespace) -> int:
    """Adds run directories one by one; what cannot be read is named, and the others are added."""
    from etprof.history.ingest import read_run_directory
    from etprof.tables.brief import listed

    unread: list[EtprofError] = []
    added: list[dict[str, Any]] = []
    lines: list[str] = []
    with ExitStack() as stack:
        store = None
        for run_dir in arguments.run_dirs:
            try:
                runs = read_run_directory(run_dir, device=arguments.device)
            except EtprofError as error:
                if len(arguments.run_dirs) == 1:
                    raise
                unread.append(error)
                continue
            # Not before: no history is made where nothing is to be kept.
            store = store or stack.enter_context(_open(arguments, create=True))
            for addition in store.add(runs, moves=True):
                how = "added" if addition.is_new else "known"
                failure = f", failed: {addition.run.failure}" if addition.run.failure else ""
                lines.append(
                    f"{how} #{addition.run_id} {run_dir} {addition.run.experiment}{failure}"
                )
                added.append({
                    "run_id": addition.run_id, "run_dir": str(run_dir), "is_new": addition.is_new,
                    "experiment": addition.run.experiment, "failure": addition.run.failure,
                })  # fmt: skip
    refused = [f"not added: {reason}" for reason in unread]
    document = {"runs": added, "not_added": [str(reason) for reason in unread]}
    # What was not added comes first: it asks for something.
    answer(arguments, document, listed(None, lines=(*refused, *lines)))
    return unread[0].exit_code if unread else 0


def _list(arguments: argparse.Namespace) -> int:
    from etprof.history.schema import FAILED
    from etprof.history.selection import newest_runs
    from etprof.history.tables import RUNS, run_document
    from etprof.tables.brief import listed

    filters = _filters(arguments) | ({"status": FAILED} if arguments.failed else {})
    with _open(arguments) as store, store.session() as session:
        runs = newest_runs(session, filters, arguments.limit)
        missing = "No run matches; `add` adds run directories"
        document = {"runs": [run_document(run) for run in runs]}
        answer(arguments, document, listed(RUNS.of(runs), missing=missing))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from etprof.history.selection import find_runs
    from etprof.history.tables import RUNS, brief_run, run_document, run_metrics
    from etprof.tables.brief import listed

    with _open(arguments) as store, store.session() as session:
        runs = find_runs(session, arguments.run_text)
        document = {"runs": [{**run_document(run), **run_metrics(run)} for run in runs]}
        if arguments.json:
            show_json(document)
        elif arguments.full or len(runs) == 1:
            for run in runs:
                show_answer(brief_run(run), full=arguments.full)
        else:
            show_answer(listed(RUNS.of(runs)), full=False)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    """Judges, and prints or writes the result; returns the exit code of CHECK_EPILOG."""
    from etprof.base.atomic import write_text
    from etprof.history.check import check_history, raise_alarms
    from etprof.history.tables import brief_check, check_on_terminal, render_check

    request = _check_request(arguments)
    with _open(arguments) as store, store.session() as session:
        result = check_history(session, request)
        if result.counts["regression"] or result.counts["drift"]:
            store.write(lambda writing: raise_alarms(writing, result, datetime.now(UTC)))
    if arguments.out is not None:
        write_text(arguments.out, render_check(result, arguments.format))
    elif arguments.json or arguments.format != "text":
        print(render_check(result, "json" if arguments.json else arguments.format), end="")
    elif arguments.full:
        show(check_on_terminal(result))
    else:
        show_answer(brief_check(result), full=False)
    return result.exit_code


def _pin(arguments: argparse.Namespace) -> int:
    """Makes runs a baseline, forgets one, or lists what is pinned."""
    from etprof.history.selection import find_runs, pin_runs, unpin
    from etprof.tables.brief import listed

    name, text = arguments.name, arguments.run_text
    if name is None:
        return _list_baselines(arguments)
    if not arguments.remove and text is None:
        raise UsageError(
            f"which run is {name} to be? `{command_line('history', 'pin', name, 'RUN')}`"
        )

    def pin(session: Session) -> list[int]:
        runs = find_runs(session, text)
        pin_runs(session, name, runs, datetime.now(UTC))
        return [run.id for run in runs]

    with _open(arguments) as store:
        if arguments.remove:
            series = store.write(lambda session: unpin(session, name))
            count = count_of(series, "series", "series")
            message = f"{name} is no longer a baseline (it was one of {count})"
            answer(arguments, {"removed": name, "series": series}, listed(None, lines=[message]))
            return 0
        runs = store.write(pin)
    numbers = ", ".join(f"#{number}" for number in runs)
    check = command_line("history", "check", "--baseline", name)
    message = f"{name} is now {numbers}; `{check}` compares with it"
    answer(arguments, {"baseline": name, "run_ids": runs}, listed(None, lines=[message]))
    return 0


def _accept(arguments: argparse.Namespace) -> int:
    """Takes runs for what is meant from now on, or lists those that were."""
    from etprof.history.selection import accept_runs, find_runs
    from etprof.tables.brief import listed

    text = arguments.run_text
    if text is None:
        return _list_acceptances(arguments)
    why = (arguments.why or "").strip()
    if not why:
        command = command_line("history", "accept", text, "--why", "TEXT")
        raise UsageError(f"why is it meant? `{command}`; the history keeps the reason")
    acceptance = {
        "accepted_at": datetime.now(UTC), "accepted_by": clean(arguments.by or user_name()),
        "why": clean(why),
    }  # fmt: skip

    def accept(session: Session) -> list[int]:
        runs = find_runs(session, text)
        accept_runs(session, runs, acceptance)
        return [run.id for run in runs]

    with _open(arguments) as store:
        run_ids = store.write(accept)
    numbers = ", ".join(f"#{run_id}" for run_id in run_ids)
    message = f"{numbers} accepted by {acceptance['accepted_by']}: later runs are compared with it"
    answer(
        arguments,
        {"run_ids": run_ids, "accepted_by": acceptance["accepted_by"], "why": acceptance["why"]},
        listed(None, lines=[message]),
    )
    return 0


def _list_acceptances(arguments: argparse.Namespace) -> int:
    from etprof.history.selection import accepted_runs
    from etprof.history.tables import ACCEPTANCES

    missing = "No run is accepted; `etprof history accept RUN --why TEXT` accepts one"
    return _answer_rows(arguments, "acceptances", ACCEPTANCES, accepted_runs, missing)


def _list_baselines(arguments: argparse.Namespace) -> int:
    from etprof.history.selection import pinned_runs
    from etprof.history.tables import BASELINES

    missing = "No baseline is pinned; `etprof history pin NAME RUN` pins one"
    return _answer_rows(arguments, "baselines", BASELINES, pinned_runs, missing)


def _answer_rows(
    arguments: argparse.Namespace,
    name: str,
    table: Table,
    read: Callable[[Session], Sequence[Any]],
    missing: str,
) -> int:
    """Answers with the rows that the history has; `name` is theirs in JSON."""
    from etprof.tables.brief import listed

    with _open(arguments) as store, store.session() as session:
        rows = table.of(read(session))
        answer(arguments, {name: rows.records()}, listed(rows, missing=missing))
    return 0


def _changes(arguments: argparse.Namespace) -> int:
    """Prints where a metric's level changed; with --fail, returns 1 for one that is worse."""
    from etprof.history.check import title_of
    from etprof.history.metric_names import metric_label
    from etprof.history.tables import CHANGES
    from etprof.history.trend import find_changes, standing_regressions
    from etprof.tables.brief import listed

    metric = _check_metric(arguments.metric, "--metric")
    with _open(arguments) as store, store.session() as session:
        changes, doubtful = find_changes(session, metric, _filters(arguments))
        table = CHANGES.of(changes, title=metric_label(metric))
        doubts = [
            f"{title_of(doubt.run)} on {doubt.run.device}: {doubt.text}" for doubt in doubtful
        ]
        document = {"metric": metric, "changes": table.records(), "doubts": doubts}
        missing = f"No change point in {metric}"
        answer(arguments, document, listed(table, missing=missing, lines=doubts))
        return int(arguments.fail and bool(standing_regressions(session, changes)))


def _noise(arguments: argparse.Namespace) -> int:
    from etprof.history.run_spread import device_spreads
    from etprof.history.tables import NOISE
    from etprof.tables.brief import listed

    with _open(arguments) as store, store.session() as session:
        spreads = device_spreads(session)
    missing = "Nothing is known yet: add three runs of one series"
    document = {"spreads": [asdict(spread) for spread in spreads]}
    answer(arguments, document, listed(NOISE.of(spreads), missing=missing))
    return 0


def _export(arguments: argparse.Namespace) -> int:
    """Writes runs to a file; never over one that is there."""
    from etprof.history.exchange import export_runs
    from etprof.tables.brief import UnbrokenLine, listed

    path: Path = arguments.file
    kind = arguments.format or path.suffix.removeprefix(".").lower()
    if kind not in ("json", "parquet", "hud") or (kind == "hud" and not arguments.format):
        raise UsageError(f"{path}: call it .json or .parquet, or say --format json, parquet or hud")
    if path.exists():
        raise OutputError(f"{path} exists and is not overwritten; choose another name")
    with _open(arguments) as store, store.session() as session:
        count = export_runs(session, path, kind, _filters(arguments))
    message = UnbrokenLine(f"Wrote {count_of(count, 'run')} to {path}")
    answer(arguments, {"runs": count, "file": str(path)}, listed(None, lines=[message]))
    return 0


def _import(arguments: argparse.Namespace) -> int:
    """Adds the runs of an export."""
    from etprof.history.exchange import import_runs, open_export
    from etprof.tables.brief import listed

    export = open_export(arguments.file)
    with _open(arguments, create=True) as store:
        done = import_runs(store, export)
    pinned = f", pinned {count_of(done.baselines, 'baseline')}" if done.baselines else ""
    message = f"Added {count_of(done.added, 'run')}, {format_count(done.known)} were known{pinned}"
    answer(arguments, asdict(done), listed(None, lines=[message]))
    return 0


def _filters(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the flags that choose runs."""
    filters = {flag: getattr(arguments, flag) for flag in _FILTERS}
    return {flag: value for flag, value in filters.items() if value is not None}


def _check_request(arguments: argparse.Namespace) -> CheckRequest:
    from etprof.history.check import CHECKED, CheckRequest
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
        work=arguments.exact_work,
        allows_first_run=arguments.allow_first_run,
        threshold=thresholds.pop(None, None),
        thresholds={name: value for name, value in thresholds.items() if name is not None},
    )


def _threshold(text: str) -> tuple[str | None, float]:
    """Reads `5` or `load_ns=20`, in per cent."""
    name, _, number = text.rpartition("=")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    if not 0 < percent < 1000:
        raise UsageError(f"--threshold {text}: give per cent above 0, such as 5 or load_ns=20")
    if name:
        _check_metric(name, "--threshold")
    return name or None, percent / 100


def _check_metric(name: str, flag: str) -> str:
    from etprof.history.metric_names import METRICS

    if name not in METRICS:
        raise UsageError(f"{flag} {name}: no such metric; there are {', '.join(METRICS)}")
    return name
