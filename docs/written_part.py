"""The part of a page that a script writes, between two comments that name the script."""

from __future__ import annotations

import re


def replace_part(page: str, module: str, part: str) -> str:
    """Returns a page with the part that `python -m MODULE` writes; without its comments, as it is."""
    begin = re.escape(f"<!-- written by `python -m {module}` -->\n")
    return re.sub(rf"(?<={begin}).*?(?=<!-- end -->)", lambda _: part, page, flags=re.DOTALL)
