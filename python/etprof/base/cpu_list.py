"""Lists of CPUs as people write them: `0-3,6`, `0xf0`."""

from __future__ import annotations

import re
from typing import Final

_LONGEST_TEXT: Final = 4096
"""More than a list of all CPUs one by one."""


def parse_cpus(text: str) -> tuple[int, ...]:
    """Reads a list such as `0-3,6` or a hexadecimal mask such as `0xf0` (CPUs 4 to 7).

    Raises ValueError for anything else.
    """
    if len(text) > _LONGEST_TEXT:
        msg = f"a list of {len(text)} letters is too long; write ranges, such as 0-63"
        raise ValueError(msg)
    if re.fullmatch(r"0x[0-9a-fA-F]{1,64}", text):
        mask = int(text, 16)
        if mask == 0:
            msg = f"the mask {text} has no CPU"
            raise ValueError(msg)
        return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)
    cpus: set[int] = set()
    for cpu_range in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", cpu_range)
        if match is None:
            msg = f'{text!r} is not a list of CPUs; write "0-3,6", or a mask "0xf0"'
            raise ValueError(msg)
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            msg = f"the range {cpu_range.strip()} ends before it begins; write {last}-{first}"
            raise ValueError(msg)
        cpus |= set(range(first, last + 1))
    return tuple(sorted(cpus))
