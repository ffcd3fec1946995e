"""The thread map as a terminal table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.base.plain_table import PlainTable
from etprof.base.units import format_duration, format_ratio

if TYPE_CHECKING:
    from etprof.analysis.split.thread_map import ThreadMap


def render_thread_map(thread_map: ThreadMap) -> PlainTable:
    """Returns one row per thread count, one column per mode; the fastest cell is marked."""
    table = PlainTable(title="Threads and SME mode", title_justify="left", caption_justify="left")
    table.add_column("threads", justify="right")
    for mode in thread_map.modes:
        table.add_column(mode, justify="right")
    if thread_map.effects:
        table.add_column("off ÷ sme2", justify="right")
    for threads in thread_map.threads:
        cells = [thread_map.cell(mode, threads) for mode in thread_map.modes]
        words = [
            format_duration(cell.median_ns if cell else None)
            + (" ←" if cell is thread_map.best else "")
            for cell in cells
        ]
        if thread_map.effects:
            effect = thread_map.effects.get(threads)
            words.append(f"{format_ratio(effect.speed_up)} {effect.verdict}" if effect else "")
        table.add_row(str(threads), *words)
    table.caption = describe_crossover(thread_map)
    return table


def describe_crossover(thread_map: ThreadMap) -> str:
    """Says in one sentence which point is best and where SME2 stops winning."""
    best = thread_map.best
    text = f"best: {best.threads} thread{'s' if best.threads > 1 else ''}, SME {best.sme}"
    if thread_map.crossover_threads is not None:
        text += f"; from {thread_map.crossover_threads} threads off is faster than sme2"
    return text


def thread_map_document(thread_map: ThreadMap) -> dict[str, object]:
    """Returns the map as JSON data; times in ns."""
    return {
        "cells": [
            {"sme": cell.sme, "threads": cell.threads, "median_ns": cell.median_ns}
            for cell in thread_map.cells
        ],
        "best": {"sme": thread_map.best.sme, "threads": thread_map.best.threads},
        "crossover_threads": thread_map.crossover_threads,
    }
