"""What every HTML page of etprof is made with: escaping, and no script but its own."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from importlib.resources import files

import jinja2
from markupsafe import Markup, escape


def template_environment(load_template: Callable[[str], str]) -> jinja2.Environment:
    """Returns an environment that gets templates from `load_template`.

    Whatever comes from a file is escaped, and a value that a page forgot is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load_template),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["with_code"] = with_code
    return environment


def with_code(text: str) -> Markup:
    """Returns a sentence in which what stands between backticks is code, and all is escaped."""
    segments = text.split("`")
    if len(segments) % 2 == 0:
        return escape(text)
    fragments = (
        Markup("<code>{}</code>").format(segment) if i % 2 else escape(segment)
        for i, segment in enumerate(segments)
    )
    return Markup().join(fragments)


def read_package_file(package: str, *names: str) -> str:
    """Returns the text of a file that is installed with the package."""
    return files(package).joinpath(*names).read_text(encoding="utf-8")


def hash_script(script: str) -> str:
    """Returns what a page's policy names, so that only this very script may run in it."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
