"""S3-1: what etprof writes as code has a stranger's names as texts alone."""

from __future__ import annotations

import ast

import pytest

from etprof.export.request import ExportRequest
from etprof.optimize.recipe import write_recipe

HOSTILE = (
    'hf:"""\nimport os\nos.mkdir("ran")\n"""',
    "hf:a\\",
    'hf:a"',
    "hf:{precision}",
    "hf:a\r\nimport os",
)


def without_texts(script: str) -> str:
    """A script's code, every text in it left out."""
    tree = ast.parse(script)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize("model", HOSTILE)
def test_a_models_name_is_a_text_in_its_recipe(model: str) -> None:
    """A folder's name ended the script's first text, and what followed was code."""
    script = write_recipe(ExportRequest(model, precision="fp32"))
    plain = write_recipe(ExportRequest("hf:a", precision="fp32"))
    assert without_texts(script) == without_texts(plain)
    texts = [node.value for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Constant)]
    assert model in texts
