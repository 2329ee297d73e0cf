"""The experiments of the paper as data: for every table and figure its methods, tasks and settings.

Items carry their numbers in the paper. A scope chooses the tasks: those of the paper, or `digits` for a quick check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any

from oddnode._utils.suggestions import unknown
from oddnode.runner.work import PLANAR

#: The paper's methods, as it writes them.
METHOD_NAMES = {
    "energy": "Energy",
    "gnnsafe": "GNNSafe",
    "gnnsafe+logitnorm": "GNNSafe + LogitNorm",
    "nodesafe": "NODESAFE",
    "energy-ft": "Energy-FT",
    "gnnsafe++": "GNNSafe++",
    "gnnsafe+++logitnorm": "GNNSafe++ + LogitNorm",
    "nodesafe++": "NODESAFE++",
}

NETWORK_NAMES = {"mlp": "MLP", "gcn": "GCN", "gat": "GAT", "jknet": "JKNet", "mixhop": "MixHop"}

_SHIFTS = ("structure", "feature", "label")

#: The sweeps of the sensitivity figure. The paper gives the values of the weights, not those of the epochs.
SWEEPS: dict[str, tuple[float, ...]] = {
    "start": (0, 10, 20, 50, 100, 150),
    "lambda1": (0.0001, 0.001, 0.01, 0.1, 1.0),
    "lambda2": (0.01, 0.1, 1.0, 10.0, 100.0),
}


@dataclass(frozen=True)
class Scope:
    """The tasks on which the experiments are run."""

    name: str
    citation: tuple[str, ...]  # The tasks of Table 1
    others: tuple[str, ...]  # The tasks of Table 2
    details: dict[str, tuple[str, ...]]  # The tasks of each per-graph table
    groups: dict[str, tuple[str, ...]]  # The groups of tasks over which the ablation averages
    timed: dict[str, str]  # For each data set, the task that is timed
    sensitivity: str  # The task of the sensitivity figure
    distributions: tuple[str, str]  # The task and the test graph of the figure of score distributions
    picture: str  # The task of the figures that show single nodes
    backbones: tuple[str, ...]  # The tasks of the figure of backbones
    networks: tuple[str, ...] = ("mlp", "gcn", "gat", "jknet", "mixhop")  # The backbones that are compared
    epochs: int | None = None  # Epochs of every training; by default the protocol decides
    seeds: int = 5
    light: bool = False  # Show figures, and items that need extra trainings, under one protocol only
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


#: The pairs that differ only by the paper's term.
CORE = ("gnnsafe", "nodesafe", "gnnsafe++", "nodesafe++")

#: The ablation of the term's two halves. The remaining half takes all of the weight.
ABLATIONS: dict[str, tuple[tuple[str, Any], ...]] = {
    "": (),
    " w/o uniform": (("lambda1", 0.0),),
    " w/o bound": (("lambda1", 1.0),),
}


@dataclass(frozen=True)
class Run:
    """A method on a task, over all seeds."""

    task: str  # Name of the task
    protocol: str  # Name of the protocol
    method: str  # Name of the method
    backbone: str = "gcn"  # Name of the backbone
    settings: tuple[tuple[str, Any], ...] = ()  # Hyper-parameters that differ from the protocol's


def methods_of(protocol: str) -> list[str]:
    """List the methods that a protocol has settings for: the paper's in its order, later ones, model-free ones."""
    from oddnode.detector import MODEL_FREE
    from oddnode.protocols import get_protocol

    known = get_protocol(protocol).methods()
    return [name for name in known if name not in MODEL_FREE] + [name for name in known if name in MODEL_FREE]


def _runs(
    tasks: Iterable[str], protocol: str, methods: Iterable[str] | None = None, backbones: Iterable[str] = ("gcn",)
) -> list[Run]:
    """List the runs of methods, by default all that the protocol has, under some backbones on some tasks."""
    names = methods_of(protocol) if methods is None else methods
    return [Run(*run) for run in product(tasks, (protocol,), names, backbones)]


def _everything(scope: Scope, protocol: str) -> list[Run]:
    return _runs(scope.tasks, protocol)


def _detail(name: str) -> Callable[[Scope, str], list[Run]]:
    return lambda scope, protocol: _runs(scope.details.get(name, ()), protocol)


def _ablation(scope: Scope, protocol: str) -> list[Run]:
    tasks = [task for group in scope.groups.values() for task in group]
    return [
        replace(run, settings=settings)
        for run in _runs(tasks, protocol, ("nodesafe", "nodesafe++"))
        for settings in ABLATIONS.values()
    ]


def _motivation(scope: Scope, protocol: str) -> list[Run]:
    return _runs([scope.picture], protocol, ("energy", "gnnsafe", "nodesafe"))


#: The methods of the figure of score distributions, in its two rows.
DISTRIBUTIONS = (
    ("energy", "gnnsafe", "gnnsafe+logitnorm", "nodesafe"),
    ("energy-ft", "gnnsafe++", "gnnsafe+++logitnorm", "nodesafe++"),
)


def _sensitivity(scope: Scope, protocol: str) -> list[Run]:
    task = scope.sensitivity
    swept = [
        Run(task, protocol, "nodesafe", settings=((name, value),))
        for name, values in scope.sweeps.items()
        for value in values
    ]
    return [Run(task, protocol, "gnnsafe"), *swept]


def networks_tasks(scope: Scope) -> tuple[str, ...]:
    """List the tasks of the table of networks: all, or in a light scope those of the figure of backbones."""
    return scope.backbones if scope.light else scope.tasks


def _networks(scope: Scope, protocol: str) -> list[Run]:
    return _runs(networks_tasks(scope), protocol, ("nodesafe",), scope.networks) if protocol == "clean" else []


@dataclass(frozen=True)
class Item:
    """A table or figure."""

    name: str  # Its name on the command line
    where: str  # Where it is in the paper
    title: str
    runs: Callable[[Scope, str], list[Run]] = field(repr=False)
    data: str = ""  # The part of the title that names the paper's data

    def title_on(self, scope: Scope) -> str:
        """The title, with the data of a scope in place of the paper's."""
        if scope.name == "paper" or not self.data:
            return self.title
        tasks = dict.fromkeys(run.task for run in self.runs(scope, "clean"))
        return self.title.replace(self.data, ", ".join(tasks))

    def __reduce__(self) -> tuple[Callable[[str], Item], tuple[str]]:
        return _item_named, (self.name,)  # lambdas cannot be pickled

    @property
    def is_figure(self) -> bool:
        return self.name.startswith("figure")

    @property
    def shows_one_seed(self) -> bool:
        """Whether it shows single nodes of one training, so that one seed will do."""
        return self.name in ("figure1", "figure2", "figure3", "figure4")

    @property
    def has_own_trainings(self) -> bool:
        """Whether it needs trainings beyond those of the main tables."""
        return self.name in ("table3", "networks", "figure2", "figure5", "figure6")


#: Every item by name.
ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        Item("table1", "Table 1", "Detection on the citation graphs, three shifts each",
             lambda scope, protocol: _runs(scope.citation, protocol),
             "the citation graphs, three shifts each"),
        Item("table2", "Table 2", "Detection on Twitch and Arxiv, with ID accuracy",
             lambda scope, protocol: _runs(scope.others, protocol), "Twitch and Arxiv"),
        Item("table3", "Table 3", "Ablation: without the bound term, without the uniform term", _ablation),
        Item("table4", "Table 4", "Twitch, every OOD graph", _detail("table4"), "Twitch"),
        Item("table5", "Table 5", "Arxiv, every OOD year", _detail("table5"), "Arxiv, every OOD year"),
        Item("table6", "Table 6", "Cora in detail, with ID accuracy", _detail("table6"), "Cora"),
        Item("table7", "Table 7", "CiteSeer in detail, with ID accuracy", _detail("table7"), "CiteSeer"),
        Item("table8", "Table 8", "PubMed in detail, with ID accuracy", _detail("table8"), "PubMed"),
        Item("table9", "Table 9", "Seconds of training per epoch and of inference",
             lambda scope, protocol: _runs(scope.timed.values(), protocol)),
        Item("table10", "Table 10", "Best epoch, and the AUROC there",
             lambda scope, protocol: _runs(scope.timed.values(), protocol, CORE)),
        Item("claims", "abstract and section 4.2", "Mean reduction of FPR95 by the paper's term, per OOD type",
             lambda scope, protocol: _runs(scope.tasks, protocol, CORE)),
        Item("agreement", "not in the paper", "How near our numbers come to the printed ones, by method", _everything),
        Item("networks", "not in the paper", "NODESAFE under five backbones on every task, protocol clean", _networks),
        Item("wins", "not in the paper", "Which method beats which: wins over cells and seeds, a test", _everything),
        Item("figure1", "Figure 1", "Extreme scores spread to neighbours; variance of scores with and without UB",
             _motivation),
        Item("figure2", "Figure 2", "2-D logits of a GAT under cross-entropy, LogitNorm and UB",
             lambda scope, protocol: _runs([scope.picture], protocol, ("gnnsafe", "gnnsafe+logitnorm", "nodesafe"),
                                           [PLANAR])),
        Item("figure3", "Figure 3", "Score distributions of ID and OOD nodes, eight methods",
             lambda scope, protocol: _runs(scope.distributions[:1], protocol, chain(*DISTRIBUTIONS))),
        Item("figure4", "Figure 4", "The graph coloured by score, GNNSafe and NODESAFE, ID and OOD", _motivation),
        Item("figure5", "Figure 5", "Sensitivity to the epoch where UB starts, to lambda1, to lambda2", _sensitivity),
        Item("figure6", "Figure 6", "Four methods under five backbones on three shifts",
             lambda scope, protocol: _runs(scope.backbones, protocol, CORE, scope.networks)),
    )
}  # fmt: skip


def _item_named(name: str) -> Item:
    return ITEMS[name]


def choose_items(names: Iterable[str] | None) -> list[Item]:
    """Look up items by name."""
    wanted = list(ITEMS) if names is None else list(names)
    for name in wanted:
        if name not in ITEMS:
            raise unknown("table or figure", name, ITEMS)
    return [item for item in ITEMS.values() if item.name in wanted]
