"""Reports of `TableModel` on fitting, scoring and calibration, and the rule by which rows are flagged."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from oddnode.tables.findings import FlaggedGroup
from oddnode.tables.learning import ColumnSummary
from oddnode.tables.values import TableError


def percent(share: float) -> str:
    """Write a share with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def between(interval: tuple[float, float]) -> str:
    """Write an interval of shares."""
    return f"{percent(interval[0])} to {percent(interval[1])}"


class Report(Struct, frozen=True, kw_only=True):
    """A report as data; `summary` puts it into words."""

    notes: list[str] = []  #: Notes for the user.

    @property
    def summary(self) -> list[str]:
        """The most important facts, in sentences."""
        return []

    def as_dict(self) -> dict[str, Any]:
        """All fields by name, as plain data."""
        return msgspec.to_builtins(self)


class FitReport(Report, frozen=True, kw_only=True):
    """A report on a fitted model."""

    method: str  #: The name of the method.
    num_nodes: int  #: Size of the tables, like the next two.
    num_edges: int
    num_features: int
    labels: list[str | int | bool]  #: The label of each class.
    num_train: int  #: Number of labelled nodes by use, like the next two.
    num_validation: int
    num_calibration: int
    best_epoch: int  #: The epoch with the best validation loss, whose weights are used.
    false_alarm_rate: float  #: The share of known nodes that may be flagged.
    threshold: float  #: Nodes that score below it are flagged.
    rate_interval: tuple[float, float]  #: Where the true rate lies with 95 % probability, by the calibration nodes.
    accuracy: float | None  #: The share of calibration nodes whose label is predicted; ``None`` without labels.
    forecast: dict[str, float] = {}  #: The share of altered known nodes that would be flagged at 5 %, by alteration.
    mean_degree: float  #: Statistics of the graph, like the next one.
    homophily: float | None
    num_exposed: int | None = None  #: Number of nodes known to be OOD that were given; ``None`` if there are none.
    num_exposed_flagged: int | None = None  #: How many of them the model flags.
    num_arrivals: int | None = None  #: Number of rows later than the training rows; ``None`` if rows have no times.
    num_arrival_edges: int | None = None  #: Number of their edges.
    num_known_arrivals: int | None = None  #: Number of arrivals with a label that the model knows.
    observed_false_alarm_rate: float | None = None  #: The share of these that is flagged.
    num_new_label_arrivals: int | None = None  #: Number of arrivals with another label.
    num_new_label_flagged: int | None = None
    num_unlabelled_arrivals: int | None = None  #: Number of arrivals without a label.
    num_unlabelled_flagged: int | None = None
    columns: list[ColumnSummary]  #: How the columns of the table of nodes were read.

    @property
    def summary(self) -> list[str]:
        """How sure the model is, in sentences."""
        caught = ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.forecast.items())
        rehearsed = [f"Rehearsed on altered known rows, caught at 5 % false alarms: {caught}."] if caught else []
        own = f"{percent(self.accuracy or 0)} of the {self.num_calibration} calibration rows get their own label."
        return [
            *([] if self.accuracy is None else [own]),
            f"Of 1000 known rows, about {1000 * self.false_alarm_rate:.3g} will be flagged; with so many calibration "
            f"rows, the rate is {between(self.rate_interval)} with 95 % probability.",
            *rehearsed,
        ]


class Rule(Struct, frozen=True, kw_only=True):
    """Which rows are flagged and written; by default all, at the calibrated false-alarm rate."""

    fdr: float | None = None  #: Flag new rows, so that at most this share of them should be false alarms.
    budget: int | None = None  #: Flag this many new rows, the oddest; if they have dates, this many of each day.
    only_new: bool = False  #: Whether to write only the rows that the model was not fitted on.
    batch: bool = True  #: Whether new rows may be judged by what they have in common.

    def __post_init__(self) -> None:
        if self.fdr is not None and self.budget is not None:
            raise TableError("`fdr` and `budget` are two ways to decide which rows are flagged; give one of them")
        if self.fdr is not None and not 0 < self.fdr < 1:
            raise TableError(f"`fdr` is {self.fdr}, expected a share between 0 and 1, for example 0.1 for 10 %")
        if self.budget is not None and self.budget < 1:
            raise TableError(f"`budget` is {self.budget}, expected the number of rows to flag, 1 or more")


class RowsDifference(Struct, frozen=True):
    """One way in which the new rows as a whole differ from the known ones."""

    name: str  #: Such as "more of `price`" or "fewer links to kitchen".
    column: str | None  #: The column; ``None`` for links.
    label: str | int | bool | None  #: The predicted label of linked rows; ``None`` for columns.
    new: float  #: Its mean over the new rows; for a category or a label, a share. NaN if it is not known.
    known: float  #: The same over the rows of the fit.
    share: float  #: How much it makes up of the difference between new and known rows.

    def __str__(self) -> str:
        form = percent if self.label is not None else "{:.3g}".format
        if self.new != self.new:  # not known for a column of some types in a graph on disk
            return self.name
        return f"{self.name} ({form(self.new)} on average, {form(self.known)} for rows of the fit)"


class RowGroup(Struct, frozen=True):
    """The rows of a group: new, unlabelled or labelled, by how the model was fitted on them; other if unknown."""

    name: str
    num_rows: int
    num_flagged: int


class ScoreReport(Report, frozen=True, kw_only=True):
    """A report on scored tables."""

    num_nodes: int  #: Size of the tables, like the next one.
    num_edges: int
    num_flagged: int  #: Number of nodes that were flagged as OOD.
    false_alarm_rate: float  #: The share of known nodes that may be flagged.
    rule: Rule  #: How rows were flagged if not by this rate.
    num_days: int | None = None  #: Number of days that have the budget each.
    groups: list[RowGroup]  #: New rows first.
    num_judged: int  #: Number of ranked rows: new ones or, if there are none, those that were not trained on.
    num_judged_flagged: int  #: How many of them are flagged.
    num_by_chance: float  #: How many false alarms to expect among these; by the rate, if all rows were known.
    findings: list[FlaggedGroup] = []  #: Flagged rows that belong together, the largest first; if explained.
    batch: list[RowsDifference] = []  #: What sets the new rows as a whole apart, if they are a batch; if explained.

    @property
    def summary(self) -> list[str]:
        """What was flagged and what chance would give, in sentences."""
        names = [group.name for group in self.groups]
        what = "rows" if names == ["other"] else "rows that the model was not trained on"
        what = "new rows" if names[0] == "new" else what
        rule, flagged, by_chance = self.rule, self.num_judged_flagged, self.num_by_chance
        chance = f"about {round(by_chance)}" if by_chance >= 1 else "less than one"
        if rule.fdr is not None:
            end = f"at most {percent(rule.fdr)} of them ({chance}) should be false alarms"
            if not flagged:
                end = f"none are odd enough for a bound of {percent(rule.fdr)} (expected_precision only estimates)"
        elif rule.budget is not None:
            end = f"{chance} of them ({percent(self.num_by_chance / max(flagged, 1))}) are expected to be false alarms"
        else:
            end = f"{chance} would be by chance at {percent(self.false_alarm_rate)}, if all were known"
        days = f", {rule.budget} of each of {self.num_days} days" if self.num_days else ""
        lines = [f"{flagged} of {self.num_judged} {what} are flagged{days}; {end}."]
        for group in self.groups if rule.fdr is None and rule.budget is None else ():
            if group.name in ("unlabelled", "labelled"):
                lines.append(f"{group.num_flagged} of {group.num_rows} {group.name} rows of the fit are flagged.")
        if self.batch:
            lines.append(f"As a whole, the new rows have {', '.join(map(str, self.batch))}.")
        return lines


class SampleReport(Report, frozen=True, kw_only=True):
    """A report on rows that were drawn for a person to check."""

    num_drawn: int
    num_drawn_flagged: int  #: How many of them are flagged.
    num_flagged: int  #: Number of flagged rows that they were drawn from.
    num_others: int  #: Number of other rows that they were drawn from.


class CheckedEstimates(Struct, frozen=True, kw_only=True):
    """Estimates from rows that were drawn at random and checked by a person, with 95 % intervals."""

    num_checked: int  #: Number of rows with an answer.
    num_unknown: int  #: How many of them turned out to be unknown.
    precision: float | None  #: The share of unknown rows among the flagged ones; ``None`` if no row was flagged.
    precision_interval: tuple[float, float]
    recall: float | None  #: The share of unknown rows that are flagged; ``None`` if no unknown row was found.
    recall_interval: tuple[float, float]
    observed_false_alarm_rate: float | None  #: The share of known rows that are flagged; ``None`` if none was found.
    observed_interval: tuple[float, float]

    @property
    def summary(self) -> list[str]:
        """The estimates in sentences."""
        parts = (
            ("of the flagged rows are unknown (precision", self.precision, self.precision_interval),
            ("of the unknown rows were flagged (recall", self.recall, self.recall_interval),
            ("of the known rows were flagged (false alarms", self.observed_false_alarm_rate, self.observed_interval),
        )
        given = [each for each in parts if each[1] is not None]
        return [f"About {percent(share or 0)} {text}; 95 % interval {between(each)})." for text, share, each in given]


class CalibrationReport(Report, frozen=True, kw_only=True):
    """A report on a recalibrated threshold."""

    num_nodes: int | None  #: Size of the tables, like the next one; ``None`` if none were given.
    num_edges: int | None
    num_calibration: int  #: Number of known nodes that determine the threshold.
    num_left_out: int  #: Number of known nodes that the model was trained or validated on, which are left out.
    false_alarm_rate: float
    threshold: float
    old_threshold: float  #: The threshold before.
    rate_interval: tuple[float, float]  #: As for `FitReport`.
    checked: CheckedEstimates | None = None  #: What the checked rows say about the decisions before.

    @property
    def summary(self) -> list[str]:
        """What the checked rows say, and how sure the rate is, in sentences."""
        rate = f"The false-alarm rate of the new threshold is {between(self.rate_interval)} with 95 % probability."
        return [*([] if self.checked is None else self.checked.summary), rate]
