"""What came of many cases: figures by kind, command and exit code, and each defect once."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.hostile.kinds import KINDS

if TYPE_CHECKING:
    from tests.hostile.cases import Result


@dataclass
class Tally:
    """Adds results up."""

    kinds: Counter[str] = field(default_factory=Counter)
    commands: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    seconds: dict[str, float] = field(default_factory=dict)
    breaches: dict[str, list[tuple[str, Result]]] = field(default_factory=lambda: defaultdict(list))
    slowest: Result | None = None

    def add(self, result: Result) -> None:
        """Counts one case."""
        self.kinds[result.kind] += 1
        for code in result.codes:
            self.commands[result.command][code] += 1
        slowest = self.seconds.get(result.command, 0.0)
        self.seconds[result.command] = max(slowest, result.seconds)
        if self.slowest is None or result.seconds > self.slowest.seconds:
            self.slowest = result
        for key, text in result.breaches:
            self.breaches[key].append((text, result))

    @property
    def cases(self) -> int:
        """Cases that ran."""
        return self.kinds.total()

    def missing_kinds(self) -> list[str]:
        """Kinds of which no case ran: they were not tested, whatever else went well."""
        return [name for name in KINDS if not self.kinds[name]]

    def table(self) -> str:
        """Returns the figures as Markdown."""
        codes = sorted({code for counter in self.commands.values() for code in counter})
        head = ["command", *(f"code {code}" for code in codes), "slowest"]
        lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        for name, counter in sorted(self.commands.items()):
            figures = [str(counter[code] or "") for code in codes]
            lines.append(f"| {' | '.join((name, *figures, f'{self.seconds[name]:.2f} s'))} |")
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        return "\n".join((*lines, "", f"Cases of each kind: {kinds}"))

    def defects(self) -> str:
        """Returns each defect once, the commonest first, with a command that shows it."""
        found = sorted(self.breaches.items(), key=lambda entry: -len(entry[1]))
        lines = []
        for key, hits in found:
            text, result = min(hits, key=lambda hit: len(hit[1].what))
            lines += [
                f"- **{key}** ({len(hits)}×): {text}",
                f"  {result.what[:300]}; `{result.words[:300]}`",
                f"  `python -m tests.hostile --case '{result.kind}:{result.number}'`",
            ]
        return "\n".join(lines)
