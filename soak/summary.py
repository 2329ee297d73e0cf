"""The table of a soak: trials and violations by family and class."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from soak.trial import Trial

__all__ = ["Summary"]


@dataclass
class Summary:
    """Counts of trials, by family and kind."""

    trials: Counter[tuple[str, str]] = field(default_factory=Counter)
    violations: Counter[tuple[str, str]] = field(default_factory=Counter)
    judged: Counter[tuple[str, str]] = field(default_factory=Counter)
    parsed: Counter[tuple[str, str]] = field(default_factory=Counter)
    accepted: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, family: str, trial: Trial) -> None:
        """Count a trial."""
        key = family, trial.kind
        self.trials[key] += 1
        self.violations[key] += trial.violation is not None
        self.judged[key] += trial.parsed is not None
        self.parsed[key] += bool(trial.parsed)
        self.accepted[key] += bool(trial.accepted)

    @property
    def num_violations(self) -> int:
        """The number of violations in all."""
        return sum(self.violations.values())

    def total(self, family: str) -> int:
        """The number of trials of a family."""
        return sum(count for (name, _), count in self.trials.items() if name == family)

    def markdown(self) -> str:
        """The table in Markdown: a line for every family, and one for each of its classes."""
        lines = ["| class | trials | violations | past the parser | accepted |", "| --- | --- | --- | --- | --- |"]
        for family in dict.fromkeys(name for name, _ in self.trials):
            keys = [key for key in self.trials if key[0] == family]
            lines.append(self._line(f"**{family}**", keys))
            lines += [self._line(kind, [(family, kind)]) for _, kind in sorted(keys)]
        return "\n".join(lines) + "\n"

    def _line(self, name: str, keys: list[tuple[str, str]]) -> str:
        trials, judged = sum(self.trials[key] for key in keys), sum(self.judged[key] for key in keys)
        shares = [sum(counts[key] for key in keys) for counts in (self.parsed, self.accepted)]
        shown = [f"{share / judged:.0%}" if judged else "" for share in shares]
        return f"| {name} | {trials:,} | {sum(self.violations[key] for key in keys)} | {' | '.join(shown)} |"
