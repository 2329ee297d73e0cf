"""The paper's tables with our numbers, built from the results of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from oddnode._utils.result_tables import Entry, Grid, Row, Table
from oddnode.bench.paper_numbers import paper_number
from oddnode.detector import MODEL_FREE, get_recipe
from oddnode.evaluation import METRIC_TITLES, METRICS
from oddnode.evaluation.statistics import Comparison, compare, holm
from oddnode.paper.experiments import ABLATIONS, CORE, ITEMS, SCOPES, Run, methods_of, networks_tasks
from oddnode.paper.results import Results, paper_facts
from oddnode.protocols import get_protocol

#: How the spread over seeds is written in files.
SPREAD = "mean ± standard deviation"

#: The metrics of detection, without the accuracy.
_DETECTION = ("auroc", "aupr", "fpr95")

#: OOD types of the paper's claims, and the tasks of each.
_TYPES: dict[str, Callable[[str], bool]] = {
    "structure": lambda task: task.endswith("/structure"),
    "feature": lambda task: task.endswith("/feature"),
    "label": lambda task: task.endswith("/label"),
    "time": lambda task: task == "arxiv",
    "graph": lambda task: task == "twitch",
}

#: Means over seeds within this distance of a printed number, in points, are counted as agreeing.
_NEAR = {"auroc": 2.0, "fpr95": 5.0}

#: The compared pairs: the paper's claims, each step towards its method, and the strongest simple alternatives.
PAIRS = (
    ("nodesafe", "gnnsafe"),
    ("nodesafe++", "gnnsafe++"),
    ("nodesafe", "gnnsafe+logitnorm"),
    ("nodesafe++", "gnnsafe+++logitnorm"),
    ("nodesafe++", "nodesafe"),
    ("gnnsafe", "energy"),
    ("gnnsafe++", "energy-ft"),
    ("energy", "msp"),
    ("nodesafe-ensemble", "nodesafe"),
    ("nodesafe-ensemble", "gnnsafe"),
    ("nodesafe", "msp-prop"),
    ("nodesafe", "grasp"),
    ("nodesafe", "gold"),
    ("nodesafe", "neighbour-cosine"),
)

_SMOKE = "A smoke run: few epochs, and digits in place of all data. It shows that everything works, not how well."

#: The notes under the tables that have some.
_NOTES = {
    "table3": "Without one half of the term the other half has all of its weight (lambda1 = 0 or 1); what weight the "
    "paper left to it is not stated.",
    "table9": "Training: the whole of fit divided by the epochs, evaluation after every epoch included. Methods that "
    "share a training share its time.\n"
    "Timed while other trainings ran beside it, with one thread each; the paper's numbers are of an NVIDIA 3090.",
    "table10": "Citation graphs: structure shift, as in the paper. The AUROCs that the paper prints here for GNNSAFE++ "
    "on Cora, CiteSeer and PubMed (81.88, 65.58, 72.78) are the AUPRs of its other tables.",
    "claims": "Mean over the data sets with that OOD type. The tables of the paper give 7.2 where its text says 5.8 "
    "(label, with exposure). For NODESAFE on CiteSeer with feature shift its main table prints 42.47 and its appendix "
    "45.47; the appendix is used here, the main table gives the 18.0 of the text.",
    "agreement": "The published protocol is made to agree; the clean one is not. The paper's numbers are of single "
    "runs, ours are means over seeds.",
    "wins": "A positive advantage (percentage points, mean over cells) means that the first method is better. p: "
    "Wilcoxon's signed-rank test, two-sided, on the differences of the cells' means over seeds; Holm: adjusted for "
    "the number of comparisons in the table. Seeds are not counted as independent evidence. Cells of one data set "
    "share its graph, so p is if anything too small.",
}


def build_table(results: Results, name: str) -> Table:
    """Build a table from the finished trainings."""
    item, plan = ITEMS[name], results.plan
    grids = [grid for protocol in plan.protocols_of(item) for grid in BUILDERS[name](results, protocol, name)]
    notes = _NOTES[name].split("\n") if name in _NOTES else []
    if name == "table2":
        tasks = _present(results, plan.scope.others)
        notes = ["Twitch has other features here than in the paper."] if "twitch" in tasks else []
        notes += [note for protocol in plan.protocols for note in get_protocol(protocol).notes(tasks)]
    if name == "networks" and "clean" not in plan.protocols:
        notes = ["Only under the clean protocol."]
    if plan.scope.name == "smoke":
        notes = [*notes, _SMOKE]
    wanted = dict.fromkeys(run.task for protocol in plan.protocols for run in item.runs(plan.scope, protocol))
    # Without the reason, which names folders of this machine; tables are published.
    notes = [*notes, *(f"{task} is missing: its data was not found." for task in wanted if task in plan.absent)]
    return Table(name, item.title_on(plan.scope), grids, notes, item.where)


# Detection: the main tables, those in detail, the ablation, and NODESAFE under other networks


def _main_table(results: Results, protocol: str, name: str) -> list[Grid]:
    tasks = _present(results, results.plan.scope.citation)
    grids = []
    for metric in ("fpr95", "auroc", "aupr"):
        rows = []
        for method in methods_of(protocol):
            cells = [_run_entry(results, Run(task, protocol, method), metric) for task in tasks]
            rows.append(_method_row(method, [*cells, _mean_entry(cells)]))
        grids.append(_grid(results, protocol, METRIC_TITLES[metric], (*tasks, "mean"), rows))
    return grids


def _networks_table(results: Results, protocol: str, name: str) -> list[Grid]:
    if protocol != "clean":
        return []
    scope = results.plan.scope
    tasks = _present(results, networks_tasks(scope))
    grids = []
    for metric in ("fpr95", "auroc", "id_acc"):
        rows = []
        for network in scope.networks:
            cells = [_run_entry(results, Run(task, protocol, "nodesafe", network), metric) for task in tasks]
            # The paper's numbers on the side are those of a GCN.
            cells = [cell if network == "gcn" else replace(cell, paper=None) for cell in cells]
            rows.append(Row(network, (*cells, _mean_entry(cells)), group="networks"))
        grid = _grid(results, protocol, METRIC_TITLES[metric], (*tasks, "mean"), rows, row_title="backbone")
        grids.append(replace(grid, caption=grid.caption.replace("backbone gcn", "nodesafe")))
    return grids


def _per_cell_table(results: Results, protocol: str, name: str) -> list[Grid]:
    scope = results.plan.scope
    tasks = scope.others if name == "table2" else scope.details.get(name, ())
    return [_detail_grid(results, task, protocol, None, METRICS) for task in _present(results, tasks)]


def _per_graph_table(results: Results, protocol: str, name: str) -> list[Grid]:
    return [
        _detail_grid(results, task, protocol, test, _DETECTION)
        for task in _present(results, results.plan.scope.details.get(name, ()))
        for test in results.tests(task, protocol)
    ]


def _detail_grid(results: Results, task: str, protocol: str, test: str | None, metrics: Sequence[str]) -> Grid:
    rows = [
        _method_row(method, [_run_entry(results, Run(task, protocol, method), metric, test) for metric in metrics])
        for method in methods_of(protocol)
    ]
    title = task if test is None or task.endswith(f"/{test}") else f"{task}/{test}"
    return _grid(results, protocol, title, [METRIC_TITLES[metric] for metric in metrics], rows)


def _ablation_table(results: Results, protocol: str, name: str) -> list[Grid]:
    groups = results.plan.scope.groups.items()
    return [_ablation_grid(results, protocol, group, tasks) for group, tasks in groups if _present(results, tasks)]


def _ablation_grid(results: Results, protocol: str, group: str, tasks: Sequence[str]) -> Grid:
    printed = {(row["method"], row["dataset"]): row for row in paper_facts("ablation")}
    rows = []
    for method in ("nodesafe", "nodesafe++"):
        for left_out, settings in ABLATIONS.items():
            said = printed.get((method + left_out, group))
            entries = []
            for metric in _DETECTION:
                cells = [_run_entry(results, Run(t, protocol, method, settings=settings), metric) for t in tasks]
                entries.append(Entry(_mean_entry(cells).values, float(said[metric]) if said else None))
            rows.append(Row(method + left_out, tuple(entries), group=method))
    title = f"{group}, mean of {len(tasks)} shifts" if len(tasks) > 1 else group
    return _grid(results, protocol, title, [METRIC_TITLES[metric] for metric in _DETECTION], rows)


# Cost: seconds, and the number of epochs to the best one


def _seconds_table(results: Results, protocol: str, name: str) -> list[Grid]:
    rows = []
    for method in methods_of(protocol):
        entries: list[Entry] = []
        for label, task in _timed(results).items():
            records, said = results.records(Run(task, protocol, method)), _paper_fact("seconds", method, label)
            training = tuple(r.facts["seconds"]["fit"] / r.facts["epochs"] for r in records)
            inference = tuple(r.facts["seconds"]["forward"] + r.metrics(method)["score_seconds"] for r in records)
            entries.append(Entry(training, said.get("train_s_per_epoch"), digits=4))
            entries.append(Entry(inference, said.get("inference_s"), digits=4))
        rows.append(Row(method, tuple(entries), model_free=method in MODEL_FREE))
    what = "seconds: training per epoch, inference over all test graphs"
    return [_grid(results, protocol, "seconds", _timed_columns(results, "training", "inference"), rows, what)]


def _convergence_table(results: Results, protocol: str, name: str) -> list[Grid]:
    rows = []
    for method in CORE:
        entries: list[Entry] = []
        for label, task in _timed(results).items():
            run, said = Run(task, protocol, method), _paper_fact("convergence", method, label)
            epochs = tuple(float(r.facts["best_epoch"]) for r in results.records(run))
            entries.append(Entry(epochs, said.get("best_epoch"), digits=0))
            entries.append(Entry(tuple(results.values(run, "auroc")), said.get("auroc")))
        rows.append(Row(method, tuple(entries), group=method.replace("nodesafe", "gnnsafe")))
    what = "the epoch with the lowest validation loss, and AUROC there in percent"
    return [_grid(results, protocol, "convergence", _timed_columns(results, "best epoch ↓", "AUROC ↑"), rows, what)]


def _timed(results: Results) -> Mapping[str, str]:
    """The tasks of the cost tables whose data was found, by column label."""
    return {label: task for label, task in results.plan.scope.timed.items() if task not in results.plan.absent}


def _timed_columns(results: Results, *titles: str) -> tuple[str, ...]:
    return tuple(f"{label}, {title}" for label in _timed(results) for title in titles)


def _paper_fact(table: str, method: str, dataset: str) -> dict[str, float]:
    """The numbers in a row of one of the paper's tables, or nothing."""
    rows = (row for row in paper_facts(table) if (row["method"], row["dataset"]) == (method, dataset))
    return {k: float(v) for k, v in next(rows, {}).items() if v and k not in ("method", "dataset")}


# Comparisons: with the paper's claims, with its printed numbers, and between methods


def _claims_table(results: Results, protocol: str, name: str) -> list[Grid]:
    columns = ("measured here", "claimed in the paper's text", "from the paper's tables")
    title = "FPR95 of GNNSafe minus FPR95 of NODESAFE (with exposure: of the ++ methods)"
    rows = [
        _claim_row(results, protocol, kind, exposure, pair)
        for kind in _TYPES
        for exposure, pair in (("no", CORE[:2]), ("yes", CORE[2:]))
    ]
    return [_grid(results, protocol, title, columns, rows, "percentage points", "kind of shift")]


def _claim_row(results: Results, protocol: str, kind: str, exposure: str, pair: Sequence[str]) -> Row:
    base, ours = pair
    [claimed] = (
        float(row["reduction"]) for row in paper_facts("claims") if (row["type"], row["exposure"]) == (kind, exposure)
    )
    tasks = [task for task in results.plan.scope.tasks if _TYPES[kind](task)]
    gains = [_reduction(results, task, protocol, base, ours) for task in _present(results, tasks)]
    measured = _mean_entry(gains) if gains else Entry(text="not here" if tasks else "-")
    printed = [
        (paper_number(task, base, "fpr95") or 0.0) - (paper_number(task, ours, "fpr95") or 0.0)
        for task in SCOPES["paper"].tasks
        if _TYPES[kind](task)
    ]
    entries = (Entry(measured.values, text=measured.text), Entry((claimed,)), Entry((fmean(printed),)))
    return Row(f"{kind}, exposure: {exposure}", entries)


def _reduction(results: Results, task: str, protocol: str, base: str, ours: str) -> Entry:
    before, after = (results.by_seed(Run(task, protocol, m), "fpr95") for m in (base, ours))
    return Entry.of({seed: before[seed] - after[seed] for seed in before} if before.keys() == after.keys() else {})


def _agreement_table(results: Results, protocol: str, name: str) -> list[Grid]:
    columns = [
        f"{METRIC_TITLES[metric]}: {what}"
        for metric, near in _NEAR.items()
        for what in ("mean difference", "mean distance", f"cells within {near:g} points")
    ]
    entries = {method: _agreement(results, protocol, method) for method in methods_of(protocol)}
    rows = [Row(method, own) for method, own in entries.items() if own]
    return [_grid(results, protocol, "ours minus the paper's", columns, rows, "percentage points")]


def _agreement(results: Results, protocol: str, method: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for metric, near in _NEAR.items():
        tasks = _present(results, results.plan.scope.tasks)
        cells = [_run_entry(results, Run(task, protocol, method), metric) for task in tasks]
        gaps = [c.mean - c.paper for c in cells if c.mean is not None and c.paper is not None]
        if gaps:
            close = sum(abs(gap) <= near for gap in gaps)
            entries += [Entry((fmean(gaps),)), Entry((fmean(map(abs, gaps)),)), Entry(text=f"{close} of {len(gaps)}")]
    return tuple(entries)


def _wins_table(results: Results, protocol: str, name: str) -> list[Grid]:
    columns = ("mean advantage", "cells: won / tied / lost", "cell and seed: won / tied / lost", "p", "p, Holm")
    caption = f"protocol {protocol}, backbone gcn, {results.plan.seeds} seeds"
    grids = []
    for metric in _NEAR:
        compared = _compared(results, protocol, metric)
        adjusted = holm([comparison.p_value for comparison in compared.values()])
        rows = tuple(_win_row(*pair, p) for pair, p in zip(compared.items(), adjusted, strict=True))
        grids.append(Grid(f"Advantage in {METRIC_TITLES[metric]}", columns, rows, caption, protocol, "methods"))
    return grids


def _compared(results: Results, protocol: str, metric: str) -> dict[str, Comparison]:
    """Compare every pair of methods on the tasks for which both have all seeds."""
    tasks = _present(results, results.plan.scope.tasks)
    values: dict[str, dict[str, list[float]]] = {}
    for method in methods_of(protocol):
        own = {task: results.values(Run(task, protocol, method), metric) for task in tasks}
        values[method] = {task: numbers for task, numbers in own.items() if len(numbers) == results.plan.seeds}
    compared = {}
    for a, b in PAIRS:
        shared = [task for task in values.get(a, {}) if task in values.get(b, {})]
        if shared:
            ours, theirs = ({task: values[method][task] for task in shared} for method in (a, b))
            compared[f"{a} over {b}"] = compare(ours, theirs, higher_is_better=metric != "fpr95")
    return compared


def _win_row(name: str, comparison: Comparison, adjusted: float) -> Row:
    c = comparison
    entries = (
        Entry((c.difference,)),
        Entry(text=f"{c.cell_wins} / {c.cells - c.cell_wins - c.cell_losses} / {c.cell_losses}"),
        Entry(text=f"{c.pair_wins} / {c.pairs - c.pair_wins - c.pair_losses} / {c.pair_losses}"),
        Entry((c.p_value,), digits=3),
        Entry((adjusted,), digits=3),
    )
    return Row(name, entries)


# What the tables are made of


def _present(results: Results, tasks: Iterable[str]) -> list[str]:
    """The tasks whose data was found."""
    return [task for task in tasks if task not in results.plan.absent]


def _grid(
    results: Results,
    protocol: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    what: str = "percent",
    row_title: str = "method",
) -> Grid:
    count = results.plan.seeds
    seeds = f"{count} seeds, {SPREAD}" if count > 1 else "one seed, no spread"
    caption = f"protocol {protocol}, backbone gcn, {seeds}, {what}"
    return Grid(title, tuple(columns), tuple(rows), caption, protocol, row_title)


def _method_row(method: str, entries: Sequence[Entry]) -> Row:
    """The row of a method; methods with and without exposure are separate groups."""
    if method in MODEL_FREE:
        return Row(method, tuple(entries), model_free=True)
    return Row(method, tuple(entries), group="exposure" if get_recipe(method).needs_exposure else "no exposure")


def _run_entry(results: Results, run: Run, metric: str, test: str | None = None) -> Entry:
    """The numbers of a run over the seeds, and the paper's number."""
    if metric == "id_acc" and run.method in MODEL_FREE:
        return Entry(text="-")
    cell = f"{run.task}/{test}" if test else run.task
    return Entry.of(results.by_seed(run, metric, test), paper_number(cell, run.method, metric))


def _mean_entry(entries: Sequence[Entry]) -> Entry:
    """Average entries seed by seed; the result has no values if the entries have different seeds."""
    shared = {entry.seeds for entry in entries}
    papers = [entry.paper for entry in entries]
    known = [p for p in papers if p is not None]
    printed = fmean(known) if known and len(known) == len(papers) else None
    if len(shared) != 1:
        return Entry(paper=printed)
    means = map(fmean, zip(*(entry.values for entry in entries), strict=True))
    return Entry.of(dict(zip(shared.pop(), means, strict=True)), printed)


#: The builder of each table.
BUILDERS: dict[str, Callable[[Results, str, str], list[Grid]]] = {
    "table1": _main_table,
    "table2": _per_cell_table,
    "table3": _ablation_table,
    "table4": _per_graph_table,
    "table5": _per_graph_table,
    "table6": _per_cell_table,
    "table7": _per_cell_table,
    "table8": _per_cell_table,
    "table9": _seconds_table,
    "table10": _convergence_table,
    "claims": _claims_table,
    "agreement": _agreement_table,
    "networks": _networks_table,
    "wins": _wins_table,
}
