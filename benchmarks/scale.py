"""Prepare, fit and score large graphs under a memory limit; every stage of every size is a process of its own.

    python benchmarks/scale.py --edges 1e8 --limit 8GiB,2GiB --work /data/scale
    python benchmarks/scale.py --edges 1e6,1e7,1e8 --limit 8GiB --work /data/scale

Graphs come from ``benchmarks/big_graph.py`` and are kept in the work folder. The page cache counts towards the limit,
and what a stage reads is dropped from the cache before. For every stage: wall time and its ratio to a plain read of the
same files under the same limit, memory, and bytes read and written. The AUROC of known against unknown nodes, none of
them labelled, shows whether the answer is right. With several sizes the growth is printed, with several limits the
largest difference between scores. Growth is that of the time beyond what the same stage takes for 10^4 edges.

``--ranks 2`` scores every graph once more: by one process with two threads, and by two ranks of one thread each,
which ``torchrun`` starts. Their scores are compared, and their times, including what ``torchrun`` takes to start.

``--in-memory`` runs the same tables through the commands without a graph folder, for comparison.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import big_graph
import numpy as np
import pyarrow.parquet as pq
import torch
from block_model import BlockModel
from common import store, whole_number
from memory_limit import Usage, forget, num_bytes, run
from sklearn.metrics import roc_auc_score
from torch import Tensor

ODDNODE = (sys.executable, "-m", "oddnode")
COLUMNS = ("--id-column", "id", "--label-column", "label", "--split-column", "split")
GIB = 1 << 30

#: Seconds and bytes that 10^8 edges on two cores may take, and how things may grow from 10^6 to 10^8 edges.
MOST_SECONDS = {"prepare": 180.0, "fit": 180.0, "score": 180.0}
MOST_ANONYMOUS = 6 * GIB
#: How many labelled nodes training learns from where growth is measured, and how long.
LABELLED, EPOCHS = {"train_mask": 1500, "val_mask": 750}, 400


@dataclass(frozen=True)
class Stage:
    """A command, and the files and folders that it reads."""

    name: str
    command: tuple[str, ...]
    reads: tuple[Path, ...]


def folder_stages(tables: Path, out: Path, device: Sequence[str], method: Sequence[str]) -> list[Stage]:
    """The stages of a graph on disk. What scoring stores with the graph is there when it runs again."""
    graph, model, scores = out / "graph", out / "model", out / "scores.parquet"
    inputs = ("--nodes", str(tables / "nodes" / "*.parquet"), "--edges", str(tables / "edges" / "*.parquet"))
    fit = (*ODDNODE, "fit", "--graph", str(graph), "--out", str(model), *device, *method)
    score = (*ODDNODE, "score", str(model), "--graph", str(graph), "--out", str(scores), *device)
    return [
        Stage("prepare", (*ODDNODE, "prepare", *inputs, *COLUMNS, "--out", str(graph)), (tables,)),
        Stage("train", (sys.executable, __file__, "--train", str(graph), "--work", str(out)), (graph,)),
        Stage("fit", fit, (graph,)),
        Stage("first score", score, (graph, model)),
        Stage("score", score, (graph, model)),
    ]


def train(path: Path) -> None:
    """The training of ``nodesafe`` alone: `fit` without references, link prediction and scores.

    It takes as many labelled nodes, with about as many neighbours, of every graph. It prints the seconds of the epochs,
    without the opening of the graph.
    """
    from oddnode import Detector
    from oddnode.detector.fitting import new_networks
    from oddnode.large import GraphFolder
    from oddnode.training import PackedRows, TrainingConfig

    folder, masks = GraphFolder(path), {}
    for name, count in LABELLED.items():
        masks[name] = torch.zeros(folder.num_nodes, dtype=torch.bool)
        masks[name][ordinary(folder, getattr(folder, name).nonzero().squeeze(1), count)] = True
    detector = Detector.from_recipe("nodesafe", device="cpu")
    networks = new_networks(detector, folder.with_masks(**masks), None)
    config = TrainingConfig(EPOCHS, detector.lr, detector.weight_decay, detector.batch_norm)
    assert detector.objective is not None
    seconds = []
    for _ in range(3):  # the shortest counts: other machines share the processors
        ends: list[float] = []
        PackedRows().start(
            [copy.deepcopy(module) for module in networks.modules],
            detector.objective,
            networks.parts,
            networks.seeds,
            config,
            lambda _, ends=ends: ends.append(time.perf_counter()),  # type: ignore[misc]
        ).result()
        seconds.append(
            (ends[-1] - ends[0]) * len(ends) / (len(ends) - 1)
        )  # the first one starts with a copy of the rows
    graph: Any = networks.data.graph
    rows = [len(graph.rows_around(nodes)[0]) for nodes in (networks.data.train, networks.data.val)]
    print(json.dumps({"rows": rows, "epochs seconds": round(min(seconds), 2)}))


def ordinary(folder: Any, nodes: Tensor, count: int) -> Tensor:
    """The first so many nodes that are neither hubs nor nearly alone."""
    degree = folder.offsets[nodes + 1] - folder.offsets[nodes]
    return nodes[(degree >= 5) & (degree <= 15)][:count]


def rank_stages(out: Path, device: Sequence[str], ranks: int) -> list[Stage]:
    """Scoring by one process with several threads, and by as many ranks of one thread."""
    reads = out / "graph", out / "model"
    score = ("score", str(out / "model"), "--graph", str(out / "graph"), *device, "--out")
    alone = ("env", f"OMP_NUM_THREADS={ranks}", *ODDNODE, *score, str(out / "threads.parquet"))
    together = ("env", "OMP_NUM_THREADS=1", *torchrun(ranks), "-m", "oddnode", *score, str(out / "ranks.parquet"))
    return [Stage(f"score, {ranks} threads", alone, reads), Stage(f"score, {ranks} ranks", together, reads)]


def torchrun(ranks: int) -> tuple[str, ...]:
    """The command that starts ranks on this machine."""
    return (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))


def table_stages(tables: Path, out: Path, device: Sequence[str], method: Sequence[str]) -> list[Stage]:
    """The stages of the same tables in memory."""
    model, scores = out / "model", out / "scores.parquet"
    inputs = [part for file in sorted((tables / "nodes").iterdir()) for part in ("--nodes", str(file))]
    inputs += [part for file in sorted((tables / "edges").iterdir()) for part in ("--edges", str(file))]
    fit = (*ODDNODE, "fit", *inputs, *COLUMNS, "--out", str(model), *device, *method)
    score = (*ODDNODE, "score", str(model), *inputs, "--out", str(scores), *device)
    return [Stage("fit", fit, (tables,)), Stage("score", score, (tables, model))]


def measured(stage: Stage, limit: int, log: Path) -> dict[str, Any]:
    """Run a stage with a cold cache, after a plain read of what it reads."""
    files = [str(file) for path in stage.reads for file in _files(path)]
    forget(stage.reads)
    plain = run(["cat", *files], limit, stdout=subprocess.DEVNULL)
    forget(stage.reads)
    with log.open("w") as said:
        usage = run(stage.command, limit, stdout=said, stderr=subprocess.STDOUT)
    return {"stage": stage.name, **_in_units(usage), "plain read seconds": round(plain.seconds, 2)} | {
        "ratio to plain read": round(usage.seconds / plain.seconds, 2)
    }


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def _in_units(usage: Usage) -> dict[str, Any]:
    read, written = usage.bytes_read, usage.bytes_written
    return {
        "seconds": round(usage.seconds, 2),
        "cpu seconds": round(usage.cpu_seconds, 2),
        "anonymous GiB": round(usage.peak_anonymous / GIB, 3),
        "with page cache GiB": round(usage.peak_total / GIB, 3),
        "read GB": None if read is None else round(read / 1e9, 3),
        "written GB": None if written is None else round(written / 1e9, 3),
        "status": usage.status,
        "out of memory": usage.out_of_memory,
        "no limit because": usage.no_limit_because,
    }


def read_scores(path: Path, graph: BlockModel) -> np.ndarray:
    """The scores of all nodes, by id."""
    table = pq.read_table(path, columns=["id", "score"])
    scores = np.full(graph.nodes, np.nan)
    scores[table["id"].to_numpy()] = table["score"].to_numpy()
    return scores


def auroc(scores: np.ndarray, graph: BlockModel) -> float:
    """Of known against unknown nodes, without those that have a label; a node without a score is an error."""
    ids = np.arange(graph.nodes)
    unlabelled = graph.split_of(ids) < 0
    is_known = graph.block_of(ids) < graph.known_blocks
    return float(roc_auc_score(is_known[unlabelled], scores[unlabelled]))


def start_seconds(make: Callable[[Path], list[Stage]], work: Path, features: int) -> dict[str, float]:
    """What every stage takes for 10^4 edges, the shorter of two runs: imports, and whatever else is fixed."""
    graph, tables, out = BlockModel(1000, 10_000, features, 200), work / "tables-start", work / "run"
    big_graph.write(graph, tables)
    rows: list[dict[str, Any]] = []
    for _ in range(2):
        rows += one_size(graph, make(tables), out, 8 * GIB, {})[0]
    timed = [(row["stage"], row["seconds"]) for row in rows if "seconds" in row]
    return {name: min(seconds for other, seconds in timed if other == name) for name, _ in timed}


def one_size(
    graph: BlockModel, stages: Sequence[Stage], out: Path, limit: int, start: dict[str, float]
) -> tuple[list[dict[str, Any]], np.ndarray | None]:
    """All stages of a graph under a limit: rows of results, and the scores if all stages ended well."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    rows, about = [], {"edges": graph.edges, "nodes": graph.nodes, "limit GiB": limit / GIB}
    for stage in stages:
        log = out / f"{stage.name.replace(' ', '-')}.log"
        row = about | measured(stage, limit, log)
        rows.append(row | {"seconds beyond start": round(max(row["seconds"] - start.get(stage.name, 0.0), 0.01), 2)})
        if stage.name == "train" and not row["status"]:
            rows[-1] |= json.loads(log.read_text().splitlines()[-1])
        print(json.dumps(rows[-1]), flush=True)
        if rows[-1]["status"]:
            print(f"{' '.join(stage.command)}\n{log.read_text()[-2000:]}", file=sys.stderr)
            return rows, None
    scores = read_scores(out / "scores.parquet", graph)
    return [*rows, about | {"stage": "answer", "auroc": round(auroc(scores, graph), 4)}], scores


def compare_ranks(graph: BlockModel, out: Path, device: Sequence[str], limit: int, ranks: int) -> list[dict[str, Any]]:
    """Score with threads and with ranks in turns, twice; the shorter time of each counts."""
    about = {"edges": graph.edges, "nodes": graph.nodes, "limit GiB": limit / GIB}
    best: dict[str, dict[str, Any]] = {}
    for stage in 2 * rank_stages(out, device, ranks):
        row = about | measured(stage, limit, out / "ranks.log")
        print(json.dumps(row), flush=True)
        if row["status"]:
            print((out / "ranks.log").read_text()[-2000:], file=sys.stderr)
            return [row]
        best[stage.name] = min(best.get(stage.name, row), row, key=lambda each: each["seconds"])
    threads, several = best.values()
    alone, together = (read_scores(out / name, graph) for name in ("threads.parquet", "ranks.parquet"))
    compared = about | {
        "stage": f"{ranks} ranks to {ranks} threads",
        "ratio of seconds": round(several["seconds"] / threads["seconds"], 3),
        "largest difference of ranks": float(np.abs(alone - together).max()),
    }
    print(json.dumps(compared), flush=True)
    return [threads, several, compared]


def growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How the stages grow from the smallest to the largest graph under the first limit."""
    found: dict[str, float] = {}
    limit = rows[0]["limit GiB"]
    for name in dict.fromkeys(row["stage"] for row in rows if "seconds beyond start" in row):
        own = sorted(
            (row for row in rows if row["stage"] == name and row["limit GiB"] == limit and not row["status"]),
            key=lambda row: row["edges"],
        )
        if len(own) < 2:
            continue
        edges, seconds = (np.array([row[key] for row in own]) for key in ("edges", "seconds beyond start"))
        found[f"{name}: slope of log time"] = round(float(np.polyfit(np.log(edges), np.log(seconds), 1)[0]), 3)
        per_edge = seconds[-1] / edges[-1] / (seconds[-2] / edges[-2])
        found[f"{name}: time per edge, largest to next"] = round(float(per_edge), 3)
        for key in ("seconds", "epochs seconds", "anonymous GiB"):
            values = [row[key] for row in own if key in row]
            if values:
                found[f"{name}: {key}, most to least"] = round(max(values) / max(min(values), 1e-9), 3)
    return found


def verdicts(rows: list[dict[str, Any]], found: dict[str, float]) -> list[str]:
    """What must hold at 10^8 edges and for the growth, and whether it does; only what was measured."""
    lines = []
    for row in rows:
        if row["edges"] == 10**8 and row["stage"] in MOST_SECONDS:
            words = f"{row['stage']} at 10^8 edges under {row['limit GiB']:g} GiB"
            # Under a tighter limit only the scores must be the same.
            most = MOST_SECONDS[row["stage"]] if row["limit GiB"] >= 8 else math.inf
            lines.append(_verdict(f"{words}: status", row["status"], 0, 0))
            lines.append(_verdict(f"{words}: seconds", row["seconds"], 0, most))
            lines.append(_verdict(f"{words}: anonymous GiB", row["anonymous GiB"], 0, MOST_ANONYMOUS / GIB))
        if "largest difference of scores" in row:
            lines.append(_verdict("scores under another limit differ by", row["largest difference of scores"], 0, 1e-5))
        if "ratio of seconds" in row:
            lines.append(_verdict(f"{row['stage']}: ratio of seconds", row["ratio of seconds"], 0, 1.15))
            lines.append(_verdict(f"{row['stage']}: scores differ by", row["largest difference of ranks"], 0, 1e-5))
    bounds = {
        "prepare: slope of log time": (0.9, 1.1),
        "score: time per edge, largest to next": (0.0, 1.3),
        "train: epochs seconds, most to least": (0.0, 1.2),
        "train: anonymous GiB, most to least": (0.0, 1.2),
    }
    return lines + [_verdict(name, found[name], *bounds[name]) for name in bounds if name in found]


def _verdict(what: str, value: float, least: float, most: float) -> str:
    word = "holds" if least <= value <= most else "DOES NOT HOLD"
    return f"{what}: {value:g} (must be {least:g} to {most:g}): {word}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="1e6,1e7,1e8", help="columns of edge_index, separated by commas")
    parser.add_argument("--edges-per-node", type=int, default=10)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--labelled", type=whole_number, help="default: 1e5, or a fifth of the smallest graph's nodes")
    parser.add_argument("--limit", default="8GiB", help="limits of memory, separated by commas")
    parser.add_argument("--method", help="default: that of `oddnode fit`")
    parser.add_argument("--backbone", help="default: that of the method; others are trained in mini-batches")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--ranks", type=int, help="compare so many ranks with so many threads")
    parser.add_argument("--in-memory", action="store_true", help="the same tables without a graph folder")
    parser.add_argument("--work", type=Path, required=True, help="folder for graphs and models; needs disk space")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)  # a stage of its own
    return parser


def main() -> None:
    options = _parser().parse_args()
    if options.train:
        train(options.train)
        return
    sizes = [whole_number(text) for text in options.edges.split(",")]
    labelled = options.labelled or min(100_000, min(sizes) // options.edges_per_node // 5)
    chosen = {"--method": options.method, "--backbone": options.backbone}
    device, method = ["--device", options.device], [part for pair in chosen.items() if pair[1] for part in pair]
    stages, out = table_stages if options.in_memory else folder_stages, options.work / "run"
    start = start_seconds(lambda tables: stages(tables, out, device, method), options.work, options.features)
    print(f"seconds of every stage for 10^4 edges: {json.dumps(start)}", flush=True)
    rows: list[dict[str, Any]] = []
    for edges in sizes:
        graph = BlockModel(edges // options.edges_per_node, edges, options.features, labelled)
        tables = options.work / f"tables-{edges}-{graph.nodes}-{graph.features}-{labelled}"
        big_graph.write(graph, tables)
        first = None
        for limit in map(num_bytes, options.limit.split(",")):
            new, scores = one_size(graph, stages(tables, out, device, method), out, limit, start)
            if scores is not None and first is not None:
                new[-1]["largest difference of scores"] = float(np.abs(scores - first).max())
            first = scores if first is None else first
            if scores is not None:
                print(json.dumps(new[-1]), flush=True)
            rows += new
        if options.ranks and first is not None:
            rows += compare_ranks(graph, out, device, num_bytes(options.limit.split(",")[0]), options.ranks)
    found = growth(rows)
    judged = verdicts(rows, found)
    print("\n".join(judged))
    name = "-".join(["scale", *(["in-memory"] if options.in_memory else []), *filter(None, [options.backbone])])
    summary = {"start seconds": start, "growth": found, "verdicts": judged}
    print(store(name, options.device, [*rows, summary], options.out))
    sys.exit(int(any(row.get("status") for row in rows)))


if __name__ == "__main__":
    main()
