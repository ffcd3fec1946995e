"""What a device can do at most, as `etprof calibrate --peaks` measured it: `peaks.json`."""

from __future__ import annotations

from typing import Literal

from etprof.base.records import Count, Name, Rate, Record, SmeInForce

PEAKS = "peaks.json"


class Peak(Record):
    """What one product or one stream of copies reached, over process launches."""

    program: Name
    precision: Name | None = None
    """Of a product; None for a stream."""
    moved_bytes: Count | None = None
    """Read and written by a stream in one call; None for a product."""
    sme: SmeInForce
    threads: Count
    launches: Count
    low: Rate
    """Of the launches' rates, 10⁹ a second: operations (a multiply-accumulate is two), or bytes."""
    high: Rate
    least_ns: Rate
    """Mean of a call in the fastest launch."""


class Peaks(Record):
    """The peaks of one device."""

    schema_version: Literal[1] = 1
    device: Name
    """As the history names it."""
    measured_at: Name
    executorch_version: Name | None = None
    peaks: tuple[Peak, ...]
