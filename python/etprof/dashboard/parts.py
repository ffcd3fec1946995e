"""Parts that several pages have: filter forms, lists in parts, changes, names of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from etprof.base.records import SME_MODES, sme_label
from etprof.base.units import count_of
from etprof.dashboard.addresses import (
    DEFAULTS,
    FIND,
    PART,
    file_word,
    make_address,
    matches_search,
    pages,
)  # fmt: skip
from etprof.dashboard.visit import NoSuchPageError
from etprof.history.metric_names import metric_label
from etprof.history.schema import FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Run

View = dict[str, Any]
ROWS_A_PAGE: Final = 50
Entry = TypeVar("Entry")

_LABELS: Final = {"axis": "Along", "by": "Columns", "sme": "SME"}
"""Of choices whose label is not their own name."""


def sme_key(mode: str) -> tuple[int, str]:
    """Sorts SME modes from nothing to everything."""
    return (-SME_MODES.index(mode) if mode in SME_MODES else 1, mode)


def choose_metric(visit: Visit) -> str:
    """Returns the metric that the page is about."""
    name = visit.address["metric"]
    if name != DEFAULTS["metric"] and name not in visit.catalogue.metrics:
        msg = f"no run in this history has the metric {name}"
        raise NoSuchPageError(msg)
    return name


def facts_of(run: Run) -> dict[str, str]:
    """What filters compare a row with; unknown facts are empty."""
    return {
        flag: "" if (value := getattr(run, FLAGS[flag])) is None else str(value)
        for flag in ("model", "device", "precision", "backend", "threads", "sme", "branch")
    }


def variant_label(run: Run, *left_out: str) -> str:
    """Says how a model ran, in the cell that already says where."""
    facts = {"precision": run.precision, "backend": run.backend, "method": run.method}
    threads = count_of(run.threads, "thread") if run.threads is not None else None
    fields = [value for name, value in facts.items() if name not in left_out]
    return " · ".join(field for field in (*fields, threads, run.variant) if field)


def config_label(run: Run) -> str:
    """Says where and how a model ran, its SME mode apart."""
    return f"{run.device} · {variant_label(run)}".removesuffix(" · ")


def passes(facts: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    """Whether a row shows under the filters; filters that it knows nothing of do not count."""
    if not matches_search(filters.get(FIND, ""), facts):
        return False
    return all(facts.get(name, value) == value for name, value in filters.items() if name != FIND)


def filter_form(visit: Visit, facts: Iterable[Mapping[str, str]], **choices: list[str]) -> View:
    """The form above a list: what it is about, then its filters with every value on offer."""
    address, rule = visit.address, pages()[visit.address.view]
    rows = list(facts)
    for name in set(rule.subject) & set(choices):
        for value in choices[name]:
            # An exported site needs what a form leads to, as it needs what is linked to.
            visit.links.href(make_address(address.view, {**address.values, name: value}))
    fields = []
    for name in (*rule.subject, *rule.filters):
        if name == FIND:
            fields.append({"name": FIND, "label": "Search", "value": address[FIND], "options": ()})
        elif name in choices:
            fields.append(_field(address[name], name, choices[name], name in rule.subject))
        elif name in rule.filters:
            values = sorted({row[name] for row in rows if row.get(name)})
            fields.append(_field(address[name], name, ["", *values], is_subject=False))
    hidden = {n: address[n] for n in rule.subject if n not in choices and address[n]}
    return {
        "action": visit.links.pattern(address),
        "fields": fields,
        "hidden": [{"name": n, "value": v, "word": file_word(v)} for n, v in hidden.items()],
        "reset": make_address(address.view, {n: address[n] for n in rule.subject}),
        "is_filtered": bool(address.filters),
    }


def _field(selected: str, name: str, values: Sequence[str], is_subject: bool) -> View:
    options = values if selected in values else [*values, selected]
    return {
        "name": name,
        "label": _LABELS.get(name, name.capitalize()),
        "value": selected,
        "is_subject": is_subject,
        "options": [
            {"value": value, "label": _option_label(name, value), "word": file_word(value)}
            for value in options
        ],
    }


def _option_label(name: str, value: str) -> str:
    if not value:
        return "any"
    labels = {"metric": metric_label, "sme": sme_label}
    return labels[name](value) if name in labels else value


def paginate(
    visit: Visit, rows: Sequence[Entry], noun: str, *, size: int = ROWS_A_PAGE
) -> tuple[Sequence[Entry], View]:
    """Returns the part of a list that the page shows, and the links to the others.

    An exported page filters by itself, so it has the whole list.
    """
    size = max(len(rows), 1) if visit.links.is_exported else size
    count = max(1, -(-len(rows) // size))
    page = min(visit.address.part, count)
    first = (page - 1) * size
    visible = rows[first : first + size]
    return visible, {
        "noun": noun,
        "counted": "tr[data-row]",
        "shown": len(visible),
        "first": first + 1,
        "last": first + len(visible),
        "total": len(rows),
        "words": count_of(len(rows), noun),
        "earlier": _page_address(visit, page - 1) if page > 1 else None,
        "later": _page_address(visit, page + 1) if page < count else None,
    }


def _page_address(visit: Visit, page: int) -> Any:  # noqa: ANN401 - an address, for a template
    return make_address(visit.address.view, {**visit.address.values, PART: str(page)})
