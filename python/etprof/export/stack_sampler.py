"""Watches what an export is doing: looks at the calling thread's stack from time to time.

Sampling needs no hook in the interpreter, so that the export runs as it would unwatched but for
the moment of each look, and nothing at all runs when nobody asks for it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Self

from etprof.export.stages import StackSample, Step
from etprof.registry import FOLDER_PACKAGE

if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType

    from etprof.export.stages import StageClock

_INTERVAL_S = 0.005
"""Between two looks, as long as Python lets a thread compute before another gets its turn."""
_LOOKS = 20_000
"""The interval is no less than such a part of the time so far: a long export is looked at less often."""

# What runs between the steps of an export and in each of them alike; its time is its caller's. So
# is that of Python's own library.
_MACHINERY = (
    "etprof.export.session",
    "etprof.export.stack_sampler",
    "executorch.exir.pass_base",
    "torch._dynamo",
    "torch._functorch",
    "torch._higher_order_ops",
    "torch._inductor",
    "torch._library",
    "torch._ops",
    "torch._prims",
    "torch._refs",
    "torch._subclasses",
    "torch.fx",
    "torch.nn.modules",
    "torch.utils",
)
_NO_MACHINERY = "torch.fx.passes."
_DEEPEST = 30
"""Steps of a stack that are kept, from the outermost one."""
_PASS = "PassBase.__call__"  # noqa: S105 - a function's name


class StackSampler:
    """Samples the stack of the thread that enters it, below the function that does."""

    def __init__(self, clock: StageClock) -> None:
        self._clock = clock
        self._steps: dict[CodeType, Step | None] = {}
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="etprof-sampler", daemon=True)
        self._thread_id = threading.get_ident()
        self._outermost: CodeType | None = None

    def __enter__(self) -> Self:
        """Starts to sample."""
        self._outermost = sys._getframe(1).f_code
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stops; no sample follows."""
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(next_look_s(self._clock.elapsed_ns())):
            frame = sys._current_frames().get(self._thread_id)
            sample = StackSample(self._clock.elapsed_ns(), self._read_steps(frame))
            self._clock.samples.append(sample)

    def _read_steps(self, frame: FrameType | None) -> tuple[Step, ...]:
        """Returns the steps on a stack, outermost first."""
        steps = []
        while frame is not None and frame.f_code is not self._outermost:
            step = self._step_of(frame)
            if step is not None:
                steps.append(step)
            frame = frame.f_back
        return tuple(steps[: -_DEEPEST - 1 : -1])

    def _step_of(self, frame: FrameType) -> Step | None:
        code = frame.f_code
        if code.co_qualname == _PASS:
            return name_pass(frame.f_locals.get("self"))
        if code not in self._steps:
            self._steps[code] = name_step(
                str(frame.f_globals.get("__name__", "generated code")), code.co_qualname
            )
        return self._steps[code]


def next_look_s(elapsed_ns: int) -> float:
    """Returns the time until the next look, in seconds."""
    return max(_INTERVAL_S, elapsed_ns / 1e9 / _LOOKS)


def name_pass(graph_pass: object) -> Step:
    """Returns the step of a graph pass, which inherits the function that is on the stack."""
    return Step(type(graph_pass).__qualname__, type(graph_pass).__module__)


def name_step(module: str, function: str) -> Step | None:
    """Returns the step of a function, or None for one that says nothing to a reader.

    A model's own folder is imported under a name that nobody has given it, which is left out.
    """
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names:
        return None
    if module.startswith(FOLDER_PACKAGE):
        module = module.rpartition(".")[2]
    if function == "<module>":
        return Step(f"import {module}", module)
    is_machinery = _is_inside(module, _MACHINERY) and not module.startswith(_NO_MACHINERY)
    is_unnamed = function.rpartition(".")[2].startswith("<") or "<locals>" in function
    return None if is_machinery or is_unnamed else Step(function, module)


def _is_inside(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in packages)
