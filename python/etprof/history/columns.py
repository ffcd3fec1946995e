"""Kinds of columns: what a store hands out is checked as it is read, for it may be a stranger's.

Each kind also says what an import must be (`accepts`), so that a table's columns are the one
declaration of what a run has.
"""

from __future__ import annotations

import json
import math
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import AfterValidator, AwareDatetime, Field
from sqlalchemy import JSON, Boolean, DateTime, Float, Integer, LargeBinary, String, TypeDecorator

from etprof.base.json_input import MOST_JSON_BYTES, parse_json
from etprof.base.limits import MOST_LAUNCHES
from etprof.base.records import CleanData, Name
from etprof.base.text import clean, clean_data
from etprof.history.connection import DamagedValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Dialect

_INFINITE: Final = (math.inf, -math.inf)
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
_MOST_SAMPLES: Final = 10 * MOST_LAUNCHES
"""Of a metric: one per block; an import may come from an etprof that allows more."""


def _check_year(moment: datetime) -> datetime:
    """Refuses what no clock said, and what has no name in another time zone."""
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        msg = f"not a year from {_FIRST_YEAR} to {_LAST_YEAR}"
        raise ValueError(msg)
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_check_year)]
Number = Annotated[float, Field(allow_inf_nan=False)]


def unpack_samples(data: bytes) -> tuple[float, ...]:
    """Returns the values that `Samples` has packed."""
    content = decompress(data, _MOST_SAMPLES * 8)
    if len(content) % 8:
        msg = f"samples of {len(content)} bytes are no whole numbers"
        raise DamagedValueError(msg)
    samples = np.frombuffer(content, "<f8")
    if not np.isfinite(samples).all():
        msg = "a sample is not a finite number"
        raise DamagedValueError(msg)
    return tuple(samples.tolist())


def _unpack_object(data: bytes) -> dict[str, Any]:
    try:
        document = parse_json(decompress(data, MOST_JSON_BYTES))
    except ValueError as error:
        msg = f"raw samples are no JSON: {error}"
        raise DamagedValueError(msg) from None
    if not isinstance(document, dict):
        msg = "raw samples are no JSON object"
        raise DamagedValueError(msg)
    return document


def decompress(data: bytes, most_bytes: int) -> bytes:
    """Undoes `zlib.compress`; raises DamagedValueError for what is longer or was not made so."""
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(data, most_bytes + 1)
    except zlib.error as error:
        msg = f"compressed samples cannot be read: {error}"
        raise DamagedValueError(msg) from None
    if len(content) > most_bytes or not reader.eof:
        msg = f"compressed samples are truncated, or longer than {most_bytes} bytes"
        raise DamagedValueError(msg)
    return content


class TypedColumn(TypeDecorator[Any]):
    """A value that is read only if it is of its kind: SQLite's columns hold anything."""

    kinds: ClassVar[tuple[type, ...]]
    accepts: ClassVar[Any]
    """What pydantic checks an import by."""
    fit: ClassVar[Callable[[Any], Any]] = staticmethod(lambda value: value)
    """Converts a stored value of the right kind."""
    missing: ClassVar[Any] = None
    """The value for NULL."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Returns what reads a value; it raises DamagedValueError for one of another kind."""
        convert, kinds, fit = super().result_processor(dialect, coltype), self.kinds, type(self).fit
        missing = self.missing

        def process(value: object) -> object:
            try:
                content = value if convert is None else convert(value)
            except (TypeError, ValueError, OverflowError) as error:
                msg = f"a value is no {kinds[0].__name__}: {error}"
                raise DamagedValueError(msg) from None
            if content is None:
                return missing
            if type(content) in kinds and content not in _INFINITE:
                return fit(content)
            msg = f"a value has type {type(content).__name__} instead of {kinds[0].__name__}"
            raise DamagedValueError(msg)

        return process


class CheckedText(TypedColumn):
    """A text that is shown, so it is cleaned when it is read."""

    impl, cache_ok, kinds, accepts = String, True, (str,), Name
    fit: ClassVar[Callable[[Any], Any]] = staticmethod(clean)


class CheckedInteger(TypedColumn):
    """A whole number, as far as every database has it."""

    impl, cache_ok, kinds = Integer, True, (int,)
    accepts = Annotated[int, Field(ge=0, lt=2**31)]


class CheckedBoolean(TypedColumn):
    """True or False."""

    impl, cache_ok, kinds, accepts = Boolean, True, (bool,), bool


class CheckedFloat(TypedColumn):
    """A finite number."""

    impl, cache_ok, kinds, accepts = Float, True, (float, int), Number


class CheckedObject(TypedColumn):
    """A JSON object, whose texts are shown."""

    impl, cache_ok, kinds, accepts = JSON, True, (dict,), CleanData
    fit: ClassVar[Callable[[Any], Any]] = staticmethod(clean_data)


class UtcDateTime(TypedColumn):
    """A moment in UTC, stored without a zone and always read with one."""

    impl, cache_ok, kinds, accepts = DateTime, True, (datetime,), Moment

    def process_bind_param(self, value: datetime | None, dialect: object) -> datetime | None:  # noqa: ARG002
        """Turns a moment of any zone into UTC; refuses one without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            msg = f"{value} has no time zone"
            raise ValueError(msg)
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: object) -> datetime | None:  # noqa: ARG002
        """Gives the moment its zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


class Samples(TypedColumn):
    """Values of blocks: zlib of little-endian float64, NULL for none."""

    impl, cache_ok, kinds = LargeBinary, True, (bytes,)
    accepts, missing = tuple[Number, ...], ()

    def process_bind_param(self, value: Sequence[float] | None, dialect: object) -> bytes | None:  # noqa: ARG002
        """Compresses the values."""
        return zlib.compress(np.asarray(value, "<f8").tobytes()) if value else None

    fit: ClassVar[Callable[[Any], Any]] = staticmethod(unpack_samples)


class PackedObject(TypedColumn):
    """A JSON object that is seldom read, compressed."""

    impl, cache_ok, kinds, accepts = LargeBinary, True, (bytes,), dict[str, Any]

    def process_bind_param(self, value: dict[str, Any] | None, dialect: object) -> bytes:  # noqa: ARG002
        """Compresses the object's text."""
        return zlib.compress(json.dumps(value, separators=(",", ":")).encode())

    fit: ClassVar[Callable[[Any], Any]] = staticmethod(_unpack_object)
