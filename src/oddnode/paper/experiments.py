"""The experiments of the paper as data: for every table and figure its methods, tasks and settings.

Items carry their numbers in the paper. A scope chooses the tasks: those of the paper, or `digits` for a quick check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from oddnode._utils.suggestions import unknown
from oddnode.paper.scopes import Scope
from oddnode.runner.work import PLANAR

__all__ = ["ITEMS", "PLANAR", "Item", "Run", "choose_items", "methods_of", "networks_tasks"]

#: The pairs that differ by the paper's own term.
CORE = ("gnnsafe", "nodesafe", "gnnsafe++", "nodesafe++")

#: The ablation of the term's two halves. The remaining half takes all of the weight.
ABLATIONS: dict[str, tuple[tuple[str, Any], ...]] = {
    "": (),
    " w/o uniform": (("lambda1", 0.0),),
    " w/o bound": (("lambda1", 1.0),),
}


@dataclass(frozen=True)
class Run:
    """A method on a task, over all seeds.

    Parameters
    ----------
    task : str
        Name of the task.
    protocol : str
        Name of the protocol.
    method : str
        Name of the method.
    backbone : str
        Name of the backbone.
    settings : tuple of (str, object)
        Hyper-parameters that differ from the protocol's.
    """

    task: str
    protocol: str
    method: str
    backbone: str = "gcn"
    settings: tuple[tuple[str, Any], ...] = ()


def methods_of(protocol: str) -> list[str]:
    """List the methods that a protocol has settings for: the paper's in its order, later ones, model-free ones.

    Parameters
    ----------
    protocol : str
        Name of the protocol.
    """
    from oddnode.detector import MODEL_FREE
    from oddnode.protocols import get_protocol

    known = get_protocol(protocol).methods()
    return [name for name in known if name not in MODEL_FREE] + [name for name in known if name in MODEL_FREE]


def _all_methods(tasks: Iterable[str], protocol: str) -> list[Run]:
    return [Run(task, protocol, method) for task in tasks for method in methods_of(protocol)]


def _main(scope: Scope, protocol: str) -> list[Run]:
    return _all_methods(scope.citation, protocol)


def _others(scope: Scope, protocol: str) -> list[Run]:
    return _all_methods(scope.others, protocol)


def _everything(scope: Scope, protocol: str) -> list[Run]:
    return _all_methods(scope.tasks, protocol)


def _detail(name: str) -> Callable[[Scope, str], list[Run]]:
    return lambda scope, protocol: _all_methods(scope.details.get(name, ()), protocol)


def _timed(scope: Scope, protocol: str) -> list[Run]:
    return _all_methods(scope.timed.values(), protocol)


def _ablation(scope: Scope, protocol: str) -> list[Run]:
    return [
        Run(task, protocol, method, settings=settings)
        for tasks in scope.groups.values()
        for task in tasks
        for method in ("nodesafe", "nodesafe++")
        for settings in ABLATIONS.values()
    ]


def _convergence(scope: Scope, protocol: str) -> list[Run]:
    return [Run(task, protocol, method) for task in scope.timed.values() for method in CORE]


def _core(scope: Scope, protocol: str) -> list[Run]:
    return [Run(task, protocol, method) for task in scope.tasks for method in CORE]


def _motivation(scope: Scope, protocol: str) -> list[Run]:
    return [Run(scope.picture, protocol, method) for method in ("energy", "gnnsafe", "nodesafe")]


def _plane(scope: Scope, protocol: str) -> list[Run]:
    return [Run(scope.picture, protocol, method, PLANAR) for method in ("gnnsafe", "gnnsafe+logitnorm", "nodesafe")]


#: The methods of the figure of score distributions, in its two rows.
DISTRIBUTIONS = (
    ("energy", "gnnsafe", "gnnsafe+logitnorm", "nodesafe"),
    ("energy-ft", "gnnsafe++", "gnnsafe+++logitnorm", "nodesafe++"),
)


def _distributions(scope: Scope, protocol: str) -> list[Run]:
    return [Run(scope.distributions[0], protocol, method) for row in DISTRIBUTIONS for method in row]


def _sensitivity(scope: Scope, protocol: str) -> list[Run]:
    task = scope.sensitivity
    swept = [
        Run(task, protocol, "nodesafe", settings=((name, value),))
        for name, values in scope.sweeps.items()
        for value in values
    ]
    return [Run(task, protocol, "gnnsafe"), *swept]


def _backbones(scope: Scope, protocol: str) -> list[Run]:
    return [Run(task, protocol, method, b) for task in scope.backbones for b in scope.networks for method in CORE]


def networks_tasks(scope: Scope) -> tuple[str, ...]:
    """List the tasks of the table of networks: all, or in a light scope those of the figure of backbones.

    Parameters
    ----------
    scope : Scope
        The scope.
    """
    return scope.backbones if scope.light else scope.tasks


def _networks(scope: Scope, protocol: str) -> list[Run]:
    if protocol != "clean":
        return []
    return [Run(task, protocol, "nodesafe", b) for task in networks_tasks(scope) for b in scope.networks]


@dataclass(frozen=True)
class Item:
    """A table or figure.

    Parameters
    ----------
    name : str
        Its name on the command line.
    where : str
        Its place in the paper.
    title : str
        What it shows.
    runs : callable
        Returns the runs it needs, given a scope and the name of a protocol.
    data : str
        The words of the title that name the paper's data.
    """

    name: str
    where: str
    title: str
    runs: Callable[[Scope, str], list[Run]] = field(repr=False)
    data: str = ""

    def title_on(self, scope: Scope) -> str:
        """The title, with the data that a scope puts in place of the paper's.

        Parameters
        ----------
        scope : Scope
            The scope.
        """
        if scope.name == "paper" or not self.data:
            return self.title
        tasks = dict.fromkeys(run.task for run in self.runs(scope, "clean"))
        return self.title.replace(self.data, ", ".join(tasks))

    @property
    def is_figure(self) -> bool:
        """Whether it is a picture."""
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
        Item("table1", "Table 1", "Detection on the citation graphs, three shifts each", _main,
             "the citation graphs, three shifts each"),
        Item("table2", "Table 2", "Detection on Twitch and Arxiv, with ID accuracy", _others, "Twitch and Arxiv"),
        Item("table3", "Table 3", "Ablation: without the bound term, without the uniform term", _ablation),
        Item("table4", "Table 4", "Twitch, every OOD graph", _detail("table4"), "Twitch"),
        Item("table5", "Table 5", "Arxiv, every OOD year", _detail("table5"), "Arxiv, every OOD year"),
        Item("table6", "Table 6", "Cora in detail, with ID accuracy", _detail("table6"), "Cora"),
        Item("table7", "Table 7", "CiteSeer in detail, with ID accuracy", _detail("table7"), "CiteSeer"),
        Item("table8", "Table 8", "PubMed in detail, with ID accuracy", _detail("table8"), "PubMed"),
        Item("table9", "Table 9", "Seconds of training per epoch and of inference", _timed),
        Item("table10", "Table 10", "Best epoch, and the AUROC there", _convergence),
        Item("claims", "abstract and section 4.2", "Mean reduction of FPR95 by the paper's term, per OOD type", _core),
        Item("agreement", "not in the paper", "How near our numbers come to the printed ones, by method", _everything),
        Item("networks", "not in the paper", "NODESAFE under five backbones on every task, protocol clean", _networks),
        Item("wins", "not in the paper", "Which method beats which: wins over cells and seeds, a test", _everything),
        Item("figure1", "Figure 1", "Extreme scores spread to neighbours; variance of scores with and without UB",
             _motivation),
        Item("figure2", "Figure 2", "2-D logits of a GAT under cross-entropy, LogitNorm and UB", _plane),
        Item("figure3", "Figure 3", "Score distributions of ID and OOD nodes, eight methods", _distributions),
        Item("figure4", "Figure 4", "The graph coloured by score, GNNSafe and NODESAFE, ID and OOD", _motivation),
        Item("figure5", "Figure 5", "Sensitivity to the epoch where UB starts, to lambda1, to lambda2", _sensitivity),
        Item("figure6", "Figure 6", "Four methods under five backbones on three shifts", _backbones),
    )
}  # fmt: skip


def choose_items(names: Iterable[str] | None) -> list[Item]:
    """Look up items by name.

    Parameters
    ----------
    names : iterable of str or None
        Names of tables and figures; ``None`` stands for all of them.

    Returns
    -------
    list of Item
        The items in the paper's order.
    """
    wanted = list(ITEMS) if names is None else list(names)
    for name in wanted:
        if name not in ITEMS:
            raise unknown("table or figure", name, ITEMS)
    return [item for item in ITEMS.values() if item.name in wanted]
