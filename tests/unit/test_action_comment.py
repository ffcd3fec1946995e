"""The action's comment as a person reads it: rendered as GitHub renders Markdown (C3-4)."""

from __future__ import annotations

import importlib.util
import re
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt

from etprof.analysis.assessment import assess_runs
from etprof.run.load import Run as LoadedRun
from etprof.views.markdown import render_markdown
from tests.golden.runs import measure

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
COMMAND = "etprof export small_net.py:Small_Net --dtype fp16 --rewrite half_activations"


def load_action() -> ModuleType:
    """The action's steps, a script beside the package."""
    spec = importlib.util.spec_from_file_location("action_steps", ROOT / ".ci/action.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What GitHub makes of the comment, as HTML."""
    names = {"RUNNER_TEMP": str(tmp_path), "ACTION_REPOSITORY": "o/etprof", "ACTION_REF": "v1"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    for name in ("MODEL", "PRECISION", "MODE", "CONFIG", "GITHUB_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    action = load_action()
    (tmp_path / "measured").mkdir()
    measure(tmp_path / "measured")
    (manifest,) = (tmp_path / "measured").rglob("manifest.json")
    run = action.folder() / "run"
    run.mkdir(parents=True)
    text = render_markdown(assess_runs([LoadedRun.load(manifest.parent)]))
    # A command of a model with underscores, as findings print it.
    told = text.replace(
        "## Findings: what to do next\n", f"## Findings: what to do next\n\nDo: `{COMMAND}`.\n"
    )
    (run / "report.md").write_text(told)
    (action.folder() / "check.md").write_text("### etprof: No regression\n")
    (action.folder() / "exit_code").write_text("0")
    html: str = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(action._body())
    return html


def test_the_comment_is_readable(shown: str) -> None:
    """Code had backslashes, pages no links, and an empty head stood over a table."""
    codes = [unescape(code) for code in re.findall(r"<code>(.*?)</code>", shown, re.DOTALL)]
    assert COMMAND in codes
    assert "\\" not in "".join(codes)
    visible = unescape(re.sub(r"<[^>]+>", "", shown))
    assert "\\" not in visible
    assert "`" not in visible
    links = re.findall(r'<a href="([^"]+)">(docs/[^<]+)</a>', shown)
    assert links
    assert all(href == f"https://github.com/o/etprof/blob/v1/{page}" for href, page in links)
    assert len(links) == len(re.findall(r"docs/\w+\.md", visible))
    assert all(heading.strip() for heading in re.findall(r"<th[^>]*>(.*?)</th>", shown))
