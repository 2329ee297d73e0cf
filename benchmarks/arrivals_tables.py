"""Tables of docs/measurements/arrivals.md and of the README from the folders that ``oddnode bench --out`` wrote.

    oddnode bench --task cora/arrivals,citeseer/arrivals,pubmed/arrivals --methods all --seeds 5 --out runs/arrivals
    oddnode bench --task paper --methods nodesafe-evidence --seeds 5 --out runs/cells
    python benchmarks/arrivals_tables.py runs/arrivals runs/cells

Where two folders have the same task and method, the later one counts; other results that are stored already stay. Means
over the seeds of every cell are stored in ``benchmarks/results/arrivals.json``; without folders, the tables are made
from there.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from oddnode._utils.result_tables import pipe_table
from oddnode.detector import MODEL_FREE

STORED = Path(__file__).parent / "results" / "arrivals.json"
CITATIONS = ("cora", "citeseer", "pubmed")
# Data sets that took part in no choice of a setting; their shifts are those of the paper, but not its cells.
REPORTED_ONLY = ("photo", "cs")
METRICS = ("auroc", "fpr95", "caught", "false_alarms", "id_acc")

Row = dict[str, Any]


def read(folders: list[Path]) -> list[Row]:
    """The results of all folders, model-free scores included, with the machine that made them."""
    found = {(row["task"], row["method"]): row for row in stored_rows()}
    for folder in folders:
        stored = json.loads((folder / "runs.json").read_text())
        for result in stored["results"]:
            own = {name: result[name] for name in ("task", "method", "seeds")}
            numbers = {m: [round(result[m], 2), round(result[f"{m}_std"], 2)] for m in METRICS if m in result}
            made_on = stored["made_on"]
            found[result["task"], result["method"]] = own | numbers | {"made_on": made_on}
    return list(found.values())


def stored_rows() -> list[Row]:
    return json.loads(STORED.read_text(encoding="utf-8"))


def mean(rows: list[Row], metric: str) -> float:
    return fmean(row[metric][0] for row in rows)


def is_arrival(task: str, group: str = "arrivals") -> bool:
    """Whether a task is in a group of the citation graphs, or of another data set, as in ``photo/arrivals``."""
    data, _, name = group.rpartition("/")
    return task.split("/")[1:2] == [name] and task.split("/")[0] in ((data,) if data else CITATIONS)


def is_of_paper(task: str) -> bool:
    """Whether a task is one of the paper's ten cells."""
    return task.count("/") < 2 and task.split("/")[0] not in REPORTED_ONLY


def by_method(rows: list[Row], group: str = "arrivals") -> str:
    """One line for every method: means over the cells of a group."""
    kinds = ["label", "feature", "structure"] if group.endswith("arrivals") else []
    head = ["method", *kinds, "mean", "caught", "false alarms", "seeds"]
    return pipe_table(head, method_lines(rows, group))


def method_lines(rows: list[Row], group: str) -> list[list[str]]:
    """The lines of `by_method`, the best method first."""
    methods: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if is_arrival(row["task"], group):
            methods[row["method"]].append(row)
    body = []
    for method, own in sorted(methods.items(), key=lambda item: -mean(item[1], "auroc")):
        kinds = {kind: [row for row in own if f"/{kind}-" in row["task"]] for kind in ("label", "feature", "structure")}
        shown = [_pair(cells) if cells else "-" for cells in kinds.values()] if group.endswith("arrivals") else []
        decided = [row for row in own if "caught" in row]
        decisions = [f"{mean(decided, name):.1f}" if decided else "-" for name in ("caught", "false_alarms")]
        name = f"*{method}*" if method in MODEL_FREE else method
        body.append([name, *shown, f"**{_pair(own)}**", *decisions, str(own[0]["seeds"])])
    return body


def by_cell(rows: list[Row], method: str, group: str) -> str:
    """One line for every cell: the method, and the best model-free score by AUROC."""
    cells = {row["task"]: row for row in rows if row["method"] == method and is_arrival(row["task"], group)}
    free: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["method"] in MODEL_FREE:
            free[row["task"]].append(row)
    body = []
    for task, row in cells.items():
        best = max(free[task], key=lambda each: each["auroc"][0], default=None)
        spread = " / ".join(f"{row[m][0]:.1f} ± {row[m][1]:.1f}" for m in ("auroc", "fpr95"))
        decisions = [f"{row[m][0]:.1f} ± {row[m][1]:.1f}" for m in ("caught", "false_alarms")]
        body.append([task, spread, *decisions, "-" if best is None else f"{best['method']} {best['auroc'][0]:.1f}"])
    return pipe_table(["cell", "AUROC / FPR95", "caught", "false alarms", "best without a model (AUROC)"], body)


def ten_cell_lines(rows: list[Row]) -> list[list[str]]:
    """Methods that the results page lacks, in its columns."""
    lines = []
    for method in ("nodesafe-evidence", "nodesafe-evidence++", "gebm", "oodgat", "centred-cosine"):
        own = [row for row in rows if row["method"] == method and is_of_paper(row["task"])]
        kinds = [[row for row in own if row["task"].endswith(k)] for k in ("structure", "feature", "label", "twitch")]
        name = f"*{method}*" if method in MODEL_FREE else method
        exposure = "yes" if method.endswith("++") else "no"
        lines.append([name, exposure, *(_pair(cells) for cells in kinds), f"**{_pair(own)}**", "-"])
    return lines


def ten_cells(rows: list[Row]) -> str:
    """One line for every method on the paper's ten cells."""
    methods: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if is_of_paper(row["task"]) and row["method"] not in MODEL_FREE:
            methods[row["method"]].append(row)
    body = []
    for method, own in methods.items():
        groups = [
            [row for row in own if row["task"].endswith(kind)] for kind in ("structure", "feature", "label", "twitch")
        ]
        body.append(
            [method, *(_pair(each) for each in groups if each), f"**{_pair(own)}**", f"{mean(own, 'id_acc'):.1f}"]
        )
    return pipe_table(["method", "structure", "feature", "label", "Twitch", "mean of ten cells", "ID accuracy"], body)


def other_shifts(rows: list[Row]) -> str:
    """One line for every method: the paper's shifts on data sets that took part in no choice."""
    tasks = [f"{data}/{kind}" for data in REPORTED_ONLY for kind in ("structure", "feature", "label")]
    methods: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["task"] in tasks:
            methods[row["method"]].append(row)
    body = []
    for method, own in sorted(methods.items(), key=lambda item: -mean(item[1], "auroc")):
        cells = [[row for row in own if row["task"] == task] for task in tasks]
        name = f"*{method}*" if method in MODEL_FREE else method
        body.append([name, *map(_pair, cells), f"**{_pair(own)}**", str(own[0]["seeds"])])
    return pipe_table(["method", *tasks, "mean", "seeds"], body)


def _pair(rows: list[Row]) -> str:
    return f"{mean(rows, 'auroc'):.1f} / {mean(rows, 'fpr95'):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    options = parser.parse_args()
    if options.folders:
        STORED.write_text(json.dumps(read(options.folders), indent=0) + "\n")
    rows = stored_rows()
    print("Arrivals, mean of 18 cells\n\n" + by_method(rows) + "\n")
    print(by_cell(rows, "nodesafe-evidence", "arrivals") + "\n")
    for group in ("arrivals-1%", "arrivals-20%", "unseen"):
        print(f"{group}\n\n{by_method(rows, group)}\n")
    print(by_cell(rows, "nodesafe-evidence", "unseen") + "\n")
    print("Ten cells\n\n" + ten_cells(rows))


if __name__ == "__main__":
    main()
