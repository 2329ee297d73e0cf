"""Tables of the cost of training: seconds, and the number of epochs to the best one."""

from __future__ import annotations

from oddnode.bench.tables import is_model_free
from oddnode.paper.experiments import CORE, Run, methods_of
from oddnode.paper.grid import Block, Entry, Row
from oddnode.paper.results import Results, paper_facts
from oddnode.paper.tables.entries import Built, caption, timed

__all__ = ["convergence_table", "seconds_table"]


def seconds_table(results: Results, name: str) -> Built:
    """Build the table of seconds of training per epoch and of inference.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    what = "seconds: training per epoch, inference over all test graphs"
    blocks = []
    for protocol in results.plan.protocols:
        rows = [
            Row(method, _seconds(results, protocol, method), model_free=is_model_free(method))
            for method in methods_of(protocol)
        ]
        columns = _columns(results, "training", "inference")
        blocks.append(Block("seconds", protocol, columns, tuple(rows), caption(results, protocol, what)))
    return blocks, [
        "Training: the whole of fit divided by the epochs, evaluation after every epoch included. Methods that share a "
        "training share its time.",
        "Timed while other trainings ran beside it, with one thread each; the paper's numbers are of an NVIDIA 3090.",
    ]


def convergence_table(results: Results, name: str) -> Built:
    """Build the table of the epoch with the lowest validation loss and its AUROC.

    Parameters
    ----------
    results : Results
        The results of a plan.
    name : str
        The name of the table, as in `oddnode.paper.experiments.ITEMS`.
    """
    what = "the epoch with the lowest validation loss, and AUROC there in percent"
    blocks = []
    for protocol in results.plan.protocols:
        rows = [
            Row(method, _convergence(results, protocol, method), group=method.replace("nodesafe", "gnnsafe"))
            for method in CORE
        ]
        columns = _columns(results, "best epoch ↓", "AUROC ↑")
        blocks.append(Block("convergence", protocol, columns, tuple(rows), caption(results, protocol, what)))
    return blocks, [
        "Citation graphs: structure shift, as in the paper. The AUROCs that the paper prints here for GNNSAFE++ on "
        "Cora, CiteSeer and PubMed (81.88, 65.58, 72.78) are the AUPRs of its other tables."
    ]


def _columns(results: Results, *titles: str) -> tuple[str, ...]:
    return tuple(f"{label}, {title}" for label in timed(results) for title in titles)


def _seconds(results: Results, protocol: str, method: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for label, task in timed(results).items():
        records, said = results.records(Run(task, protocol, method)), _said("seconds", method, label)
        training = tuple(r.facts["seconds"]["fit"] / r.facts["epochs"] for r in records)
        inference = tuple(r.facts["seconds"]["forward"] + r.metrics(method)["score_seconds"] for r in records)
        entries += [
            Entry(training, _number(said.get("train_s_per_epoch")), digits=4),
            Entry(inference, _number(said.get("inference_s")), digits=4),
        ]
    return tuple(entries)


def _convergence(results: Results, protocol: str, method: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for label, task in timed(results).items():
        run, said = Run(task, protocol, method), _said("convergence", method, label)
        epochs = tuple(float(r.facts["best_epoch"]) for r in results.records(run))
        entries += [
            Entry(epochs, _number(said.get("best_epoch")), digits=0),
            Entry(tuple(results.values(run, "auroc")), _number(said.get("auroc"))),
        ]
    return tuple(entries)


def _said(table: str, method: str, dataset: str) -> dict[str, str]:
    """The row of one of the paper's tables, or nothing."""
    found = (row for row in paper_facts(table) if (row["method"], row["dataset"]) == (method, dataset))
    return next(found, {})


def _number(text: str | None) -> float | None:
    return float(text) if text else None
