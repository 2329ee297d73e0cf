"""The scopes of the experiments: the tasks of the paper, or `digits` for a quick check."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SCOPES", "Scope"]

_SHIFTS = ("structure", "feature", "label")

#: The sweeps of the sensitivity figure. The paper gives the values of the weights, not those of the epochs.
SWEEPS: dict[str, tuple[float, ...]] = {
    "start": (0, 10, 20, 50, 100, 150),
    "lambda1": (0.0001, 0.001, 0.01, 0.1, 1.0),
    "lambda2": (0.01, 0.1, 1.0, 10.0, 100.0),
}


@dataclass(frozen=True)
class Scope:
    """The tasks on which the experiments are run.

    Parameters
    ----------
    name : str
        ``"paper"`` or ``"smoke"``.
    citation, others : tuple of str
        The tasks of Table 1 and of Table 2.
    details : dict of str to tuple of str
        The tasks of each per-graph table.
    groups : dict of str to tuple of str
        The groups of tasks over which the ablation averages.
    timed : dict of str to str
        For each data set, the task that is timed.
    sensitivity : str
        The task of the sensitivity figure.
    distributions : tuple of (str, str)
        The task and the test graph of the figure of score distributions.
    picture : str
        The task of the figures that show single nodes.
    backbones : tuple of str
        The tasks of the figure of backbones.
    networks : tuple of str
        The backbones that are compared.
    epochs : int, optional
        Epochs of every training; by default the protocol decides.
    seeds : int
        Number of seeds.
    light : bool
        Show figures, and items with trainings of their own, under one protocol only.
    sweeps : dict of str to tuple of float
        The values of each hyper-parameter in the sensitivity figure.
    """

    name: str
    citation: tuple[str, ...]
    others: tuple[str, ...]
    details: dict[str, tuple[str, ...]]
    groups: dict[str, tuple[str, ...]]
    timed: dict[str, str]
    sensitivity: str
    distributions: tuple[str, str]
    picture: str
    backbones: tuple[str, ...]
    networks: tuple[str, ...] = ("mlp", "gcn", "gat", "jknet", "mixhop")
    epochs: int | None = None
    seeds: int = 5
    light: bool = False
    sweeps: dict[str, tuple[float, ...]] = field(default_factory=lambda: dict(SWEEPS))

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks of the main tables."""
        return tuple(dict.fromkeys((*self.citation, *self.others)))


def _shifts(data: str) -> tuple[str, ...]:
    return tuple(f"{data}/{shift}" for shift in _SHIFTS)


SCOPES = {
    "paper": Scope(
        name="paper",
        citation=(*_shifts("cora"), *_shifts("citeseer"), *_shifts("pubmed")),
        others=("twitch", "arxiv"),
        details={
            "table4": ("twitch",),
            "table5": ("arxiv",),
            "table6": _shifts("cora"),
            "table7": _shifts("citeseer"),
            "table8": _shifts("pubmed"),
        },
        groups={"cora": _shifts("cora"), "arxiv": ("arxiv",), "twitch": ("twitch",)},
        timed={
            "cora": "cora/structure",
            "citeseer": "citeseer/structure",
            "pubmed": "pubmed/structure",
            "twitch": "twitch",
            "arxiv": "arxiv",
        },
        sensitivity="twitch",
        distributions=("twitch", "es"),
        picture="cora/structure",
        backbones=_shifts("cora"),
    ),
    "smoke": Scope(
        name="smoke",
        citation=_shifts("digits"),
        others=("digits/label",),  # digits stand in for every data set
        details={
            "table4": ("digits/label",),
            "table5": ("digits/structure",),
            "table6": _shifts("digits"),
            "table7": ("digits/feature",),
            "table8": ("digits/label",),
        },
        groups={"digits/label": ("digits/label",)},
        timed={"digits": "digits/structure"},
        sensitivity="digits/label",
        distributions=("digits/label", "label"),
        picture="digits/structure",
        backbones=("digits/label",),
        networks=("mlp", "gcn", "gat"),
        epochs=25,
        seeds=2,
        light=True,
        sweeps={"start": (0, 10, 20), "lambda1": (0.001, 0.1, 1.0), "lambda2": (0.1, 1.0, 10.0)},
    ),
}
