"""What every JSON file of ours is read with: checked fields, frozen, errors that name the field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from etprof.base.errors import InputFileError
from etprof.base.json_input import MOST_JSON_BYTES, read_json
from etprof.base.text import clean, clean_data

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""What a signed 64-bit integer holds: nanoseconds of 292 years, or bytes."""
Rate = Annotated[float, Field(gt=0, lt=1e15)]
"""Per second; nothing is done a million times in a nanosecond."""
Name = Annotated[str, AfterValidator(clean)]
"""Text that is shown. Paths, arguments and prompts, which are used, stay `str`."""
CleanData = Annotated[dict[str, Any], AfterValidator(clean_data)]
"""JSON data that no record describes, and that is shown."""
Entry = TypeVar("Entry")
SmeInForce = Literal["sme2", "sme1", "off"]
"""What a CPU can be told."""
SME_ON: Final[tuple[SmeInForce, ...]] = ("sme2", "sme1")
SmeMode = Literal["sme2", "sme1", "auto", "off"]
"""What can be asked for; with `auto` the CPU's best is in force."""
SME_MODES: Final[tuple[str, ...]] = get_args(SmeMode)
"""From everything to nothing: the one order of them."""
SME_LABELS: Final = {"off": "SME off", "auto": "SME auto", "sme1": "SME1", "sme2": "SME2"}
"""The modes for people."""


def sme_label(mode: str) -> str:
    """Returns the SME mode for people."""
    return SME_LABELS.get(mode, f"SME {mode}")


def _refuse_alike(value: Any, check: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401
    """Refuses keys that are one after cleaning: an entry would be lost unseen."""
    checked = check(value)
    if isinstance(value, dict) and len(checked) != len(value):
        msg = "two of its names look the same"
        raise ValueError(msg)
    return checked


Named = Annotated[dict[Name, Entry], WrapValidator(_refuse_alike)]
"""Entries by their name."""


class Record(BaseModel):
    """Part of a JSON file; unknown fields belong to newer versions and are kept out."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


Document = TypeVar("Document", bound=Record)


def read_record(
    kind: type[Document], path: Path, *, way_out: str, most_bytes: int = MOST_JSON_BYTES
) -> Document:
    """Reads and checks the JSON file `path`; raises InputFileError with field and way out."""
    document = read_json(path, way_out=way_out, most_bytes=most_bytes)
    return check_record(kind, document, path, way_out=way_out)


def check_record(kind: type[Document], document: object, path: Path, *, way_out: str) -> Document:
    """Checks JSON data that was read from `path`; raises InputFileError with field and way out."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        msg = f"{path} is damaged: {first_problem(error)}; {way_out}"
        raise InputFileError(msg) from None


def first_problem(error: ValidationError) -> str:
    """Says what is wrong first, with its field."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(component) for component in first["loc"]) or "document"
    return f"{field}: {first['msg']}"
