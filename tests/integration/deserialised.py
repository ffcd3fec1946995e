"""ETDumps as executorch.devtools reads them."""

from __future__ import annotations

import warnings
from typing import Any


def deserialise(data: bytes) -> list[Any]:
    """The file's event blocks as executorch.devtools' own dataclasses, through flatc and JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

        return list(deserialize_from_etdump_flatcc(data).run_data)
