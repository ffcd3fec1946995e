"""Where a model runs: each target takes the same request and brings back the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.run.runner_result import RunnerResult
    from etprof.targets.device_lock import MeasuredDevice
    from etprof.targets.request import RunnerRequest
    from etprof.targets.state import TargetState


class Target(Protocol):
    """A machine or emulator that can run etprof-runner."""

    platform: str
    """Name of its row in the registry, and of its folder under runs/."""

    def describe(self) -> dict[str, object]:
        """Identity and state of the machine, for the manifest."""

    def device(self) -> MeasuredDevice:
        """What must be locked while it is measured on: a phone, or the host that is loaded."""

    def sme_modes(self) -> tuple[str, ...]:
        """SME modes that the CPU can give, such as ("sme2", "sme1", "off") or ("off",)."""

    def can_count(self) -> bool:
        """Whether something that counts microkernel calls is available."""

    def counts_any_runner(self) -> bool:
        """Whether microkernels are counted of a runner that the user has named, too."""

    def has_clock(self) -> bool:
        """Whether a runner that times each operator is available."""

    def default_threads(self) -> int:
        """Threads to use when the user does not say."""

    def read_state(self) -> TargetState:
        """What may change between launches: frequencies, temperatures, load."""

    def runner_file(self, request: RunnerRequest) -> Path | None:
        """The runner that `request` starts, as a file of this machine; None where none is known."""

    def run(self, request: RunnerRequest) -> RunnerResult:
        """Runs the model once; the request's files are on this machine afterwards.

        Raises TargetError when the runner fails, is killed or does not end in time.
        """
