"""The report as Markdown, of one or several runs."""

from __future__ import annotations

from etprof.views.formats import Format
from etprof.views.markdown import render_markdown

FORMAT = Format(of_all=lambda runs: {"report.md": render_markdown(runs)})
