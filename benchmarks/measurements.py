"""Write the tables of docs/measurements from the results in benchmarks/results.

python benchmarks/measurements.py                           # rewrites the tables of all pages
python benchmarks/measurements.py --check                   # exit status 1 if a page is out of date
python benchmarks/measurements.py --results runs/results.md # also takes over what `oddnode paper` wrote
python benchmarks/measurements.py --paired runs/cells       # and the folder that `oddnode bench --task paper` wrote
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import arrivals_tables
from common import provenance

PAGES = Path(__file__).parent.parent / "docs" / "measurements"
RESULTS = Path(__file__).parent / "results"
BLOCK = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->", re.DOTALL)

Rows = list[dict[str, Any]]


def stored(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _performance(name: str) -> str:
    """The table of a benchmark on a CPU and, where it was run there, on a GPU."""
    parts = []
    for device in ("cpu", "cuda"):
        if (RESULTS / f"{name}-{device}.json").is_file():
            found = stored(f"{name}-{device}")
            parts.append(f"{SECTIONS[name](found['rows'], device)}\n\n*{_machine(found)}*")
    return "\n\n".join(parts)


def _machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    where = machine.get("gpu") if found["device"] == "cuda" else None
    where = where or f"{machine['cpu']}, {machine['cores']} cores"
    return f"{where}; torch {machine['torch']}, PyG {machine['torch_geometric']}; {found['date']}"


def _train(rows: list[dict[str, Any]], device: str) -> str:
    body = []
    for row in rows:
        ways = row["reference by way s"]
        others = "; ".join(f"{way}: {value:.0f} s, {value / row['oddnode s']:.1f} x" for way, value in ways.items())
        body.append(
            [
                row["task"],
                f"{len(row['methods'])} x {row['seeds']}",
                _short(row["oddnode s"]) + _first_time(row),
                others,
                f"**{min(ways.values()) / row['oddnode s']:.1f}**",
            ]
        )
    timed = {row["reference, timed epochs per method"] for row in rows}
    loop = f"reference-style loop, extrapolated from {', '.join(map(str, sorted(timed)))} epochs a method"
    head = ["task", "methods x seeds", "oddnode, s", loop, "times faster, at least"]
    return f"### Whole cells, {_word(device)}\n\n{_table(head, body)}"


def _first_time(row: dict[str, Any]) -> str:
    first = row.get("oddnode s, first time in the process")
    return "" if first is None else f" ({_short(first)} the first time in a process)"


def _step(rows: list[dict[str, Any]], device: str) -> str:
    names = [key for key in rows[0] if key != "graph"]
    body = [[row["graph"], *(_short(row[name]) for name in names)] for row in rows]
    return f"### One step of NODESAFE, ms, {_word(device)}\n\n{_table(['graph', *names], body)}"


def _attention(rows: list[dict[str, Any]], device: str) -> str:
    body = [[_short(value) for value in row.values()] for row in rows]
    return f"### An epoch of a GAT, ms, {_word(device)}\n\n{_table(list(rows[0]), body)}"


def _propagate(rows: list[dict[str, Any]], device: str) -> str:
    names = [key for key in rows[0] if key not in ("nodes", "edges", "edges per second") and _is_number(rows[0][key])]
    head = ["nodes", "edges", *names]
    body = [[f"{row['nodes']:.0e}", f"{row['edges']:.0e}", *(_short(row[name]) for name in names)] for row in rows]
    text = f"### One hop of propagation, {_word(device)}\n\n{_table(head, body)}"
    blocked = [row for row in rows if row.get("in blocks")]
    if blocked:
        counts = list(blocked[0]["in blocks"])
        body = [
            [
                f"{row['edges']:.0e}",
                *(f"{_short(row['in blocks'][c]['ms'])} ({_short(row['in blocks'][c]['peak GB'])})" for c in counts),
            ]
            for row in blocked
        ]
        text += "\n\nIn blocks of sources, ms (and GB in all):\n\n" + _table(
            ["edges", *(f"{c} blocks" for c in counts)], body
        )
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _scaling(rows: list[dict[str, Any]], device: str) -> str:
    sizes = [row for row in rows if "edges" in row]
    body = [[f"{row['nodes']:,}", f"{row['edges']:,}", *(_short(row[n]) for n in list(row)[2:])] for row in sizes]
    slope = next((row for row in rows if "edges" not in row), {})
    said = "".join(f"\n\nSlope of log time against log edges from 100,000 edges on: **{v}**." for v in slope.values())
    return f"### Growth, {_word(device)}\n\n{_table(list(sizes[0]), body)}{said}"


def hand_written_table(rows: list[dict[str, Any]]) -> str:
    """One line for each way to do a thing, oddnode's first."""
    tried = [key for key in ("vmap", "CUDA graph") if any(key in row for row in rows)]
    body = []
    for row in rows:
        for place, (way, value) in enumerate(row["ms"].items()):
            answers = [row.get(key, {}).get(way) for key in tried]
            said = ["-" if answer is None else "yes" if answer else "no" for answer in answers]
            what = [row["part"], row["graph"]] if place == 0 else ["", ""]
            body.append([*what, way, _short(value), _short(row["times ours"][way]), *said])
    return _table(["part", "graph", "way", "ms", "times oddnode's", *tried], body)


def _hand_written(rows: list[dict[str, Any]], device: str) -> str:
    return f"### Parts that are written by hand, {_word(device)}\n\n{hand_written_table(rows)}"


SECTIONS: dict[str, Callable[[list[dict[str, Any]], str], str]] = {
    "train": _train,
    "step": _step,
    "attention": _attention,
    "propagate": _propagate,
    "scaling": _scaling,
    "hand_written": _hand_written,
}


def _table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _short(value: Any) -> str:
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _word(device: str) -> str:
    return "GPU" if device == "cuda" else "CPU"


def _same_speed() -> str:
    rows = {device: {row["probe"]: row for row in stored(f"same_speed-{device}")["rows"]} for device in ("cpu", "cuda")}
    body = []
    for probe in rows["cpu"]:
        pairs = [rows[device][probe] for device in ("cpu", "cuda")]
        body.append([probe, *(x for r in pairs for x in (_ms(r["other"]), _ms(r["present"]), f"{r['ratio']:.2f}"))])
    return _table(["", "CPU before", "CPU now", "ratio", "GPU before", "GPU now", "ratio"], body)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.1 else f"{1000 * seconds:.1f}"


def _mini_batches() -> str:
    """AUROC: mean and standard deviation over seeds; of differences within a seed, the mean and its standard error."""
    cells: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    for row in stored("mini_batches-cpu")["rows"]:
        trainers = cells.setdefault((row["task"], row["method"], row["backbone"]), {})
        trainers.setdefault(row["trainer"].partition("(")[0], {})[row["seed"]] = row["auroc"]
    body = []
    for task, method, backbone in sorted(cells, key=_mini_batch_order):
        by = cells[task, method, backbone]
        full, mini = ([by[trainer][seed] for seed in by["FullBatch"]] for trainer in ("FullBatch", "MiniBatch"))
        gain = [b - a for a, b in zip(full, mini, strict=True)]
        mean = f"{round(fmean(gain), 1) + 0.0:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0")
        spreads = [f"{fmean(values):.1f} ± {stdev(values):.1f}" for values in (full, mini)]
        body.append([f"`{task}`", method, backbone, *spreads, f"{mean} ± {stdev(gain) / len(gain) ** 0.5:.1f}"])
    return _table(["task", "method", "network", "whole graph", "mini-batches", "difference"], body)


def _mini_batch_order(cell: tuple[str, str, str]) -> tuple[int, ...]:
    task, method, backbone = cell
    kinds, networks = ("structure", "feature", "label"), ("gcn", "gat", "jknet", "mixhop")
    return kinds.index(task.partition("/")[2]), ("msp", "nodesafe").index(method), networks.index(backbone)


def _membership() -> str:
    rows = stored("membership-cpu")["rows"]
    body = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        means = [{m: fmean(row[kind][m] for row in own) for m in own[0][kind]} for kind in ("members", "newcomers")]
        body.append([method, *(f"{m['auroc']:.1f} / {m['fpr95']:.1f}, {m['false_alarms']:.1f} %" for m in means)])
    return _table(["method", "members: AUROC / FPR95, false alarms", "newcomers"], body)


def _years() -> str:
    """A line for every fit and unknown class; cells have a number for every span of years."""
    lines: dict[tuple[str, str], dict[int, Rows]] = {}
    for row in stored("years-cpu")["rows"]:
        _, until, _, after, unknown = row["task"].rsplit("/", 1)[1].split("-", 4)
        lines.setdefault((until, unknown), {}).setdefault(int(after), []).append(row)
    metrics = ("auroc", "caught", "false_alarms", "checked_caught", "checked_false_alarms", "checked_spread")
    body = []
    for (until, unknown), spans in lines.items():
        cells = [[own for _, own in sorted(spans.items()) if metric in own[0]] for metric in metrics]
        means = [[f"{fmean(r[m] for r in own):.1f}" for own in found] for m, found in zip(metrics, cells, strict=True)]
        shown = [" / ".join(each) or "-" for each in ([str(after) for after in sorted(spans)], *means)]
        body.append([until, unknown.replace("unknown-", "class "), *shown])
    head = ["fit until", "unknown", "years after", "AUROC", "caught", "false alarms"]
    return _table([*head, "checked: caught", "checked: false alarms", "spread"], body)


def _made(name: str, make: Callable[[Rows], str]) -> str:
    """A table and how it was made."""
    found = stored(name)
    return f"{make(found['rows'])}\n\n*{_machine(found)}, commit {(found['commit'] or 'unknown')[:7]}*"


def _forecast(rows: Rows) -> str:
    """A line for every kind: the forecast and what was caught, means over graphs and seeds."""
    kinds: dict[str, Rows] = {}
    for row in sorted(rows, key=lambda row: not row["is_rehearsed"]):
        kinds.setdefault(row["kind"], []).append(row)
    body, errors = [], []
    for kind, own in kinds.items():
        name = kind if own[0]["is_rehearsed"] else f"*{kind}*"
        shown = [f"{fmean(row['forecast'] for row in own):.0f}"]
        for judged in ("alone", "batch"):
            for placement in ("scattered", "grouped"):
                placed = [row[f"caught_{judged}"] for row in own if row["placement"] == placement]
                shown.append(f"{fmean(placed):.0f}")
        body.append([name, str(len({row["graph"] for row in own})), *shown])
        for graph in {row["graph"] for row in own} if own[0]["is_rehearsed"] else ():
            there = [row for row in own if row["graph"] == graph]
            errors.append(fmean(row["caught_alone"] for row in there) - fmean(row["forecast"] for row in there))
    head = ["kind (*not rehearsed*)", "graphs", "forecast", "alone: scattered", "grouped", "with the batch: scattered"]
    low, middle, high = (sorted(errors)[round(share * (len(errors) - 1))] for share in (0.1, 0.5, 0.9))
    return (
        f"{_table([*head, 'grouped'], body)}\n\nIn {len(errors)} pairs of graph and rehearsed kind, the share that is "
        f"caught alone minus the\nforecast is {middle:+.0f} points in the median, between {low:+.0f} and {high:+.0f} "
        f"in four of five, and in size {fmean(map(abs, errors)):.0f} points on average."
    )


def _batch_sizes(rows: Rows) -> str:
    rows = [row for row in rows if "seed" not in row]
    body = []
    for where, graphs in (("for choosing", ("campus", "citations-wide", "films")), ("reported", ())):
        for size in sorted({row["size"] for row in rows}):
            for judged in ("alone", "batch"):
                own = [r for r in rows if (r["size"], r["judged"]) == (size, judged)]
                own = [r for r in own if (r["graph"] in graphs) == bool(graphs)]
                own = own if graphs else [r for r in own if r["graph"] not in ("campus", "citations-wide", "films")]
                if own:
                    names = [name for name in own[0] if name not in ("graph", "size", "judged")]
                    shown = [f"{fmean(row[name] for row in own):.1f}" for name in names]
                    body.append([where, str(len(own)), f"{size:,}", judged.replace("batch", "with the batch"), *shown])
    head = ["graphs", "number", "arrivals", "judged", "false alarms at 5 %", "caught"]
    return _table([*head, "false discoveries at 10 %", "found", "at 20 %", "found"], body)


def _years_references(rows: Rows) -> str:
    lines: dict[tuple[str, str, str], dict[int, Rows]] = {}
    for row in rows:
        _, until, _, after, unknown = row["task"].rsplit("/", 1)[1].split("-", 4)
        key = until, unknown.replace("unknown-", "class "), row["references"]
        lines.setdefault(key, {}).setdefault(int(after), []).append(row)
    body = []
    for key, spans in sorted(lines.items()):
        shown = [" / ".join(map(str, sorted(spans)))]
        metrics = ("auroc", "caught", "false_alarms", "false_alarms_alone", "checked_false_alarms", "is_drift")
        for metric in metrics:
            cells = [own for _, own in sorted(spans.items()) if metric in own[0]]
            times = 100 if metric == "is_drift" else 1
            shown.append(
                " / ".join(f"{times * fmean(r[metric] for r in own):.{0 if times > 1 else 1}f}" for own in cells) or "-"
            )
        body.append([*key, *shown])
    head = ["fit until", "unknown", "reference nodes", "years after", "AUROC", "caught", "false alarms"]
    return _table([*head, "alone", "with 50 checked", "drift is said (% of fits)"], body)


def _single_kinds(rows: Rows) -> str:
    """The cells in which a single kind of evidence is more than four points better than the default."""
    cells: dict[str, Rows] = {}
    for row in rows:
        cells.setdefault(row["task"], []).append(row)
    found = []
    for task, own in cells.items():
        kinds = {kind: fmean(row["kinds"].get(kind, 50.0) for row in own) for kind in own[0]["kinds"]}
        best = max(kinds, key=lambda kind: kinds[kind])
        found.append((fmean(row["auroc"] for row in own), kinds[best], task, best))
    found.sort(key=lambda each: each[0] - each[1])
    body = [[task, f"{own:.1f}", best, f"{area:.1f}"] for own, area, task, best in found if area - own > 4]
    mean, bound = fmean(each[0] for each in found), fmean(each[1] for each in found)
    said = f"{len(body)} of {len(found)} cells; mean AUROC over all {mean:.1f}, of the best kind in each {bound:.1f}."
    return f"{_table(['cell', 'default', 'best kind', 'AUROC'], body)}\n\n{said}"


def _around(rows: Rows) -> str:
    """How far evidence is averaged: means over the tasks of every family, and over families."""
    families = sorted({row["family"] for row in rows})
    body = []
    for name in rows[0]["found"]:
        found = [[row["found"][name] for row in rows if row["family"] == family] for family in families]
        means = [[fmean(column) for column in zip(*own, strict=True)] for own in found]
        mean = [fmean(column) for column in zip(*means, strict=True)]
        cells = [f"{own[0]:.1f} / {own[1]:.1f}" for own in means]
        body.append([name, *cells, f"**{mean[0]:.1f} / {mean[1]:.1f}**", f"{mean[2]:.1f}"])
    return _table(["candidate", *families, "mean", "false alarms"], body)


def _other_graphs(rows: Rows) -> str:
    """Means over seeds, and the largest share."""
    cells: dict[tuple[str, str], Rows] = {}
    for row in rows:
        cells.setdefault((row["halves"], row["graph"]), []).append(row)
    names = {"alone": "alone", "beside": "beside", "beside, no batch": "without the batch", "calibrated": "calibrated"}
    body = []
    for (halves, graph), own in sorted(cells.items(), key=lambda cell: cell[0][0]):
        shares = ([row[name] for row in own] for name in names)
        body.append([halves, graph, *(f"{fmean(each):.1f} ({max(each):.1f})" for each in shares)])
    return _table(["halves", "graph", *names.values()], body)


def _without_labels(rows: Rows) -> str:
    body = []
    for row in rows:
        shares = [f"{row[name]:.1f}" if name in row else "-" for name in ("caught", "false_alarms")]
        both = (f"{row[name]:.1f} ± {row[f'{name}_std']:.1f}" for name in ("auroc", "fpr95"))
        body.append([row["data"], row["method"], " / ".join(both), *shares])
    return _table(["nodes", "method", "AUROC / FPR95", "caught", "false alarms"], body)


def _carry_over(rows: Rows) -> str:
    from carry_over import lines  # imports torch

    return "\n".join(lines(rows))


def _ethereum() -> str:
    body = []
    for row in stored("ethereum-cpu")["rows"]:
        metrics = ("per_100_alerts", "auroc", "auroc_normal")
        numbers = [f"{row[m]:.0f} ± {row[f'{m}_std']:.0f}" if m in row else "-" for m in metrics]
        share = f"{row['phishing']:,} of {row['arrivals']:,}"
        body.append([row["fit"], str(row["phishing_labels"]), row["method"], share, *numbers])
    head = ["fit", "phishing labels", "method", "phishing among arrivals", "in 100 alerts", "AUROC"]
    return _table([*head, "AUROC against normal accounts"], body)


STAGES = {"score": "score, again", "first score": "score, for the first time", "score, 2 ranks": "score, two ranks"}


def _scale() -> str:
    body = []
    for row in stored("scale-cpu")["rows"]:
        if row.get("stage") in ("prepare", "fit", "first score", "score", "score, 2 ranks"):
            body.append(
                [
                    f"{STAGES.get(row['stage'], row['stage'])}, {row['limit GiB']:.0f} GiB",
                    *(f"{row[name]:.0f}" for name in ("seconds", "cpu seconds")),
                    f"{row['anonymous GiB']:.1f} GiB",
                    f"{row['read GB']:.1f}, {row['written GB']:.1f} GB",
                    f"{row['ratio to plain read']:.0f}",
                ]
            )
    head = ["stage, memory limit", "seconds", "CPU seconds", "anonymous memory", "read, written", "to a plain read"]
    return _table(head, body)


GPU_ROWS = {
    "open, check and copy the folder, from the page cache": ("open, check and copy seconds", "{:.1f} s", None),
    "fit, 200 epochs": ("fit seconds", "{:.1f} s", None),
    "both": ("fit with opening seconds", "{:.1f} s", "60 s"),
    "32 hops": ("32 hops seconds", "{:.2f} s", "0.5 s"),
    "support, 64 probes over 32 hops": ("support seconds", "{:.1f} s", "5 s"),
    "score all nodes, support included": ("score seconds", "{:.1f} s", None),
    "averages of the features over neighbours": ("averages of features seconds", "{:.2f} s", None),
    "memory of the GPU": ("GPU memory GB", "{:.1f} GB", "80 GB"),
}


def _scale_gpu() -> str:
    methods = [row for row in stored("scale-gpu-cuda")["rows"] if "method" in row]
    body = []
    for title, (name, shown, limit) in GPU_ROWS.items():
        held = "" if limit is None else f"{limit}: {'holds' if all(r['holds'][name] for r in methods) else 'missed'}"
        body.append([title, *(shown.format(row[name]) for row in methods), held])
    body.append(["AUROC of known against unknown nodes", *(f"{100 * row['AUROC']:.1f}" for row in methods), ""])
    return _table(["", *(f"`{row['method']}`" for row in methods), "limit"], body)


def _ten_cells() -> dict[str, list[str]]:
    """The first table of the results page: its lines by method."""
    page = (PAGES / "results.md").read_text(encoding="utf-8")
    main = page.split("## Protocol clean")[1].split("\n\n")[2].splitlines()[2:]
    lines = [[cell.strip("| ") for cell in line.split(" | ")] for line in main]
    return {line[0].strip("*"): line for line in lines}


def _conclusion() -> str:
    lines = sorted(_ten_cells().values(), key=lambda line: -float(line[6].strip("*").split(" / ")[0]))
    free = next(line for line in lines if line[0].startswith("*"))
    best = {exposure: next(line for line in lines if line[1] == exposure) for exposure in ("no", "yes")}
    shown = {key: f"`{line[0].strip('*')}` has {line[6].strip('*')}" for key, line in [*best.items(), ("free", free)]}
    return (
        f"**Conclusion.** Mean AUROC / FPR95 over the ten cells, clean protocol: {shown['no']};\n"
        f"with exposure, {shown['yes']}; without a model, {shown['free']}.\n"
        "`nodesafe-evidence` is not in this run: [all methods](index.md#all-methods) has it next to these."
    )


def _paired() -> str:
    """The default next to other methods, all from one run of one source, and the paired tests."""
    found = stored("paired")
    return f"{found['cells']}\n\n{found['tests']}\n\n*{found['made_on']}; commit {found['commit'][:7]}*"


def take_over_paired(folder: Path) -> None:
    """Store the table by cell and the paired comparisons of a benchmark."""
    head, _, tests = (folder / "report.md").read_text(encoding="utf-8").partition("## Paired comparisons\n")
    if not tests:
        raise SystemExit(f"{folder}: one method only, so there is nothing to compare")
    made_on, cells = head.split("\n\n")[1].split(". Scores")[0], head.split("\n\n| task |")[0].split("\n\n", 2)[2]
    found = {"made_on": made_on, "commit": provenance()["commit"], "cells": cells.strip(), "tests": tests.strip()}
    (RESULTS / "paired.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _summary() -> str:
    """Every method on both suites: the ten cells from the results page, the arrivals from their own file."""
    rows = arrivals_tables.stored_rows()
    cells = _ten_cells()
    cells |= {line[0].strip("*"): line for line in arrivals_tables.ten_cell_lines(rows)}
    arrivals = {line[0].strip("*"): line for line in arrivals_tables.method_lines(rows, "arrivals")}
    order = sorted(cells, key=lambda name: -float(cells[name][6].strip("*").split(" / ")[0]))
    body = []
    for name in order:
        on_arrivals = arrivals[name][4:7] if name in arrivals else ["-"] * 3
        method, exposure, *kinds, ten, printed = cells[name][:8]
        body.append([method, exposure, ten, printed, *on_arrivals, *kinds])
    head = ["method", "exposure", "ten cells", "paper prints", "arrivals", "caught", "false alarms"]
    return _table([*head, "structure", "feature", "label", "Twitch"], body)


def _arrivals(group: str) -> str:
    return arrivals_tables.by_method(arrivals_tables.stored_rows(), group)


def _arrival_cells(group: str) -> str:
    return arrivals_tables.by_cell(arrivals_tables.stored_rows(), "nodesafe-evidence", group)


TABLES: dict[str, Callable[[], str]] = {
    "summary": _summary,
    "conclusion": _conclusion,
    "paired": _paired,
    **{
        group: partial(_arrivals, group)
        for group in ("arrivals", "arrivals-1%", "arrivals-20%", "unseen", "photo/arrivals", "cs/arrivals")
    },
    **{
        f"{group}-cells": partial(_arrival_cells, group)
        for group in ("arrivals", "unseen", "photo/arrivals", "cs/arrivals")
    },
    "other-shifts": lambda: arrivals_tables.other_shifts(arrivals_tables.stored_rows()),
    "membership": _membership,
    "years": _years,
    "ethereum": _ethereum,
    "forecast": partial(_made, "forecast-cpu", _forecast),
    "batch-sizes": partial(_made, "batch_sizes-cpu", _batch_sizes),
    "years-references": partial(_made, "years_references-cpu", _years_references),
    "single-kinds": partial(_made, "single_kinds-cpu", _single_kinds),
    "without-labels": partial(_made, "without_labels-cpu", _without_labels),
    "other-graphs": partial(_made, "other_graphs-cpu", _other_graphs),
    "around": partial(_made, "around_selection-cpu", _around),
    "carry-over": partial(_made, "carry_over-cpu", _carry_over),
    **{name: partial(_performance, name) for name in SECTIONS},
    "same_speed": _same_speed,
    "mini_batches": _mini_batches,
    "scale": _scale,
    "scale-gpu": _scale_gpu,
}


def with_tables(page: str) -> str:
    """The page with its tables made anew."""
    return BLOCK.sub(lambda block: f"<!-- table: {block[1]} -->\n\n{TABLES[block[1]]()}\n\n<!-- end -->", page)


PAIRED = """## The default by cell, with paired tests

One run of one source, all ten cells and five seeds: `oddnode bench --task paper --seeds 5 --methods
nodesafe-evidence,nodesafe-ensemble,nodesafe,msp-prop,gnnsafe,grasp,knn,msp,energy --out runs/cells`.

<!-- table: paired -->
<!-- end -->
"""


def take_over(path: Path) -> None:
    """Copy the page that `oddnode paper` wrote, with a conclusion; its links lead one folder up from here."""
    text = re.sub(r"\]\((tasks|reproduction)\.md\)", r"](../\1.md)", path.read_text(encoding="utf-8"))
    text = text.replace("# Results\n", "# The ten cells\n\n<!-- table: conclusion -->\n<!-- end -->\n", 1)
    text = text.replace("## Protocol clean\n", f"{PAIRED}\n## Protocol clean\n", 1)
    (PAGES / "results.md").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--results", type=Path, help="a results.md that `oddnode paper` wrote")
    parser.add_argument("--paired", type=Path, help="a folder that `oddnode bench --task paper --out` wrote")
    options = parser.parse_args()
    if options.paired is not None:
        take_over_paired(options.paired)
    if options.results is not None:
        take_over(options.results)
    stale = []
    for path in sorted(PAGES.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        made = with_tables(page)
        if made != page:
            stale.append(path.name)
            if not options.check:
                path.write_text(made, encoding="utf-8")
    print(*stale, sep="\n")
    sys.exit(1 if options.check and stale else 0)


if __name__ == "__main__":
    main()
