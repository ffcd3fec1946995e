"""The stages of an export: what each one took, and, when asked, what ran in it.

Stages are measured with a clock. What runs in them is pyinstrument's to find out: it looks at the
exporting thread's stack, and a call is as long as every look in a row finds it.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import reduce
from math import fsum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

from etprof.base.html_template import hash_script, read_package_file, template_environment
from etprof.base.text import clean
from etprof.run.program import StageTime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyinstrument import Profiler
    from pyinstrument.frame import Frame
    from pyinstrument.session import Session

_INTERVAL_S = 0.005
"""Between two looks, as long as Python lets a thread compute before another gets its turn."""
SHORTEST_SHARE = 1 / 2000
"""Of the whole export: shorter calls are not in the trace, so that a level has 2000 at most."""
SMALLEST_SHARE = 1 / 1000
"""Of the whole export: calls of less time in sum are not in the flame graph."""

# What runs between the steps of an export and in each of them alike; its time is its caller's. So
# is that of Python's own library.
_MACHINERY = re.compile(
    r"/torch/(_dynamo|_functorch|_higher_order_ops|_inductor|_library|_prims|_refs|_subclasses|utils"
    r"|nn/modules|fx/(?!passes/)|_ops\.py)|/executorch/exir/pass_base\.py"
)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


class StageListener(Protocol):
    """Hears of stages as they start and end."""

    def stage_started(self, name: str) -> None:
        """A stage has begun."""

    def stage_ended(self, stage: StageTime) -> None:
        """A stage ended without an error."""

    def stage_failed(self) -> None:
        """The stage that had begun ended with an error."""


@dataclass
class StageClock:
    """Times stages and passes them on to a listener."""

    listener: StageListener | None = None
    is_tracing: bool = False
    """Whether the calls in the stages are sampled too."""
    times: list[StageTime] = field(default_factory=list)
    sessions: list[Session | None] = field(default_factory=list)
    """What was seen in each of the stages; None where nobody looked."""
    _began_ns: int = field(default_factory=time.perf_counter_ns)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times the block as stage `name`; a block that raises is not recorded."""
        if self.listener is not None:
            self.listener.stage_started(name)
        profiler = _make_profiler() if self.is_tracing else None
        start_ns = time.perf_counter_ns() - self._began_ns
        try:
            with nullcontext() if profiler is None else profiler:
                yield
        except BaseException:
            if self.listener is not None:
                self.listener.stage_failed()
            raise
        end_ns = time.perf_counter_ns() - self._began_ns
        self.times.append(StageTime(name=name, start_ns=start_ns, duration_ns=end_ns - start_ns))
        self.sessions.append(None if profiler is None else profiler.last_session)
        if self.listener is not None:
            self.listener.stage_ended(self.times[-1])


def _make_profiler() -> Profiler:
    from pyinstrument import Profiler

    class ThriftyProfiler(Profiler):  # type: ignore[misc] # its types are not read
        """Keeps each frame's text once, not once a look: a look has a hundred frames."""

        def _sampler_saw_call_stack(self, stack: list[str], *more: Any) -> None:  # noqa: ANN401
            super()._sampler_saw_call_stack([sys.intern(frame) for frame in stack], *more)

    return ThriftyProfiler(interval=_INTERVAL_S, async_mode="disabled")


def draw_stages(clock: StageClock) -> dict[str, Any]:
    """Returns a Chrome trace of the stages and the calls in them, in wall-clock time."""
    shortest_ns = fsum(stage.duration_ns for stage in clock.times) * SHORTEST_SHARE
    events = []
    for stage, frame in zip(clock.times, _stage_frames(clock), strict=True):
        events.append(_slice(stage.name, stage.start_ns, stage.duration_ns, {}))
        events += _draw_calls(frame, stage.start_ns, shortest_ns)
    name = {"name": "process_name", "ph": "M", "pid": 1, "tid": 0}
    named = {**name, "args": {"name": "etprof export"}}
    return {"displayTimeUnit": "ns", "traceEvents": [named, *events]}


def _draw_calls(frame: Frame, start_ns: float, shortest_ns: float) -> Iterator[dict[str, Any]]:
    """Yields the calls in a frame, each one after the one before."""
    for call in frame.children:
        duration_ns = call.time * 1e9
        if duration_ns >= shortest_ns and not call.is_synthetic:
            yield _slice(call.function, start_ns, duration_ns, {"file": call.file_path})
            yield from _draw_calls(call, start_ns, shortest_ns)
        start_ns += duration_ns


def _slice(name: str, start_ns: float, duration_ns: float, more: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start_ns / 1000, "dur": duration_ns / 1000}
    return {"name": name, "ph": "X", "pid": 1, "tid": 1, **times, "args": more}


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src {% for each in scripts %}'sha256-{{ each|hashed }}' {% endfor %}; img-src data:; \
base-uri 'none'; form-action 'none'">
<title>{{ title }} · time of the export</title><style>{{ style|safe }}</style></head>
<body><div id="app"></div>
{% for each in scripts %}
<script>{{ each|safe }}</script>
{% endfor %}
</body></html>
"""


def draw_flames(title: str, clock: StageClock) -> str:
    """Returns the same times in sum, as pyinstrument's own page, which may fetch nothing."""
    from pyinstrument import processors, renderers
    from pyinstrument.frame import Frame
    from pyinstrument.session import Session

    stages = _stage_frames(clock)
    root = Frame("export\0\0000", stages, fsum(stage.time for stage in stages))
    processors.aggregate_repeated_calls(root, {})
    processors.remove_irrelevant_nodes(root, {"filter_threshold": SMALLEST_SHARE})
    session = reduce(
        Session.combine, [session for session in clock.sessions if session is not None]
    )
    session.target_description = clean(title)
    about = json.dumps(session.to_json(include_frame_records=False))
    # A name may hold what ends a script.
    data = f'{{"session": {about}, "frame_tree": {root.to_json_str()}}}'.replace("<", r"\u003c")
    call = f'pyinstrumentHTMLRenderer.render(document.getElementById("app"), {data})'
    script, style = (
        read_package_file(renderers.__name__, "html_resources", f"app.{kind}")
        for kind in ("js", "css")
    )
    environment = template_environment({"page": _PAGE}.__getitem__)
    environment.filters["hashed"] = hash_script
    return environment.get_template("page").render(title=title, style=style, scripts=[script, call])


def _stage_frames(clock: StageClock) -> list[Frame]:
    """Returns a frame for each stage, as long as the clock says, with the calls in it."""
    from pyinstrument.frame import Frame

    frames = []
    for stage, session in zip(clock.times, clock.sessions, strict=True):
        # The root is the function that holds the stage.
        root = None if session is None else session.root_frame()
        calls = [] if root is None else [call for child in root.children for call in _calls(child)]
        frames.append(Frame(f"{stage.name}\0\0000", calls, stage.duration_ns / 1e9))
    return frames


def _calls(frame: Frame) -> Iterator[Frame]:
    """Yields what a reader is shown of a frame: itself, or the calls in it where it says nothing."""
    from pyinstrument.frame import SELF_TIME_FRAME_IDENTIFIER, Frame

    if frame.is_synthetic:
        yield Frame(SELF_TIME_FRAME_IDENTIFIER, time=frame.time)
        return
    inside = [call for child in frame.children for call in _calls(child)]
    name = name_call(frame.function, frame.file_path or "", frame.class_name)
    if name is None:
        yield from inside
    else:
        location = (clean(name), clean(frame.file_path or ""), str(frame.line_no or 0))
        yield Frame("\0".join(location), inside, frame.time)


def name_call(function: str, file: str, class_name: str | None) -> str | None:
    """Returns the name of a call, or None for one that says nothing to a reader.

    A graph pass has its own class's name, though it inherits the function.
    """
    if function == "<module>":
        return None if is_standard(file) else f"import {PurePath(file).stem}"
    if function.startswith("<") or is_standard(file) or _MACHINERY.search(file):
        return None
    return function if class_name is None else f"{class_name}.{function}"


def is_standard(file: str) -> bool:
    """Whether a file is of the language's own library, or code that has no file."""
    is_packaged = "site-packages" in file or "dist-packages" in file
    return file.startswith("<") or (file.startswith(_STANDARD_LIBRARY) and not is_packaged)
