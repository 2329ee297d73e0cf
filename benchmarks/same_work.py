"""The work of `same_numbers`: what is run with a source, and which of its results are compared.

A unit of work is a name and a function, which notes its results, the items. Names that oddnode neither exports nor
documents are in the adapters only, because they may move; packages that old sources lack are imported where they are
used. What is put into words is an item of its own, which ends in ``wording``, beside the numbers in it.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch_geometric.data import Data

import oddnode

if TYPE_CHECKING:
    from oddnode import Detector, Task
    from oddnode.large import GraphFolder

EPOCHS = 60
BACKBONES = ("gcn", "mlp", "gat", "jknet", "mixhop")
#: The uniform term of NODESAFE++ begins after 120 epochs there.
PUBLISHED_EPOCHS = {"nodesafe++": 130}
AS_GIVEN = {"propagation": "as-given"}
#: Units of work on real data: protocol, task, method, backbone, epochs.
REAL = [
    ("clean", "pubmed/label", "nodesafe", "gcn", 30),
    ("clean", "cora/structure", "nodesafe", "gcn", EPOCHS),
    ("clean", "cora/label", "nodesafe++", "gcn", EPOCHS),
    ("clean", "cora/label", "gkde", "gcn", EPOCHS),
    ("clean", "cora/label", "gpn", "gcn", EPOCHS),
    ("clean", "cora/feature", "nodesafe", "gat", EPOCHS),
    ("clean", "twitch", "nodesafe++", "gcn", 30),
    ("published", "cora/structure", "nodesafe", "gcn", EPOCHS),
    ("published", "cora/structure", "gnnsafe++", "gcn", EPOCHS),
    ("published", "cora/label", "gkde", "gcn", EPOCHS),
    ("published", "citeseer/label", "nodesafe", "gcn", EPOCHS),
    ("published", "twitch", "nodesafe", "gcn", 30),
]
#: Settings of a detector that no method has by itself.
SETTINGS: dict[str, dict[str, Any]] = {
    "by default": {},
    "three layers": {"num_layers": 3},
    "running batch norm": {"batch_norm": "running"},
    "no spare logit": {"num_spare_logits": 0},
    "no dropout": {"dropout": 0.0},
    "seed 1": {"seed": 1},
}

#: Methods that learn neither from an exposure graph nor from logits of all nodes; these can be fitted on disk.
ON_DISK: tuple[str, ...] = ("msp", "mahalanobis", "energy", "gnnsafe", "gnnsafe+logitnorm", "nodesafe", "msp-prop")
ON_DISK += ("nodesafe-msp", "nodesafe-ensemble", "evidence", "nodesafe-evidence", "knn", "grasp")
ON_DISK += ("nonzeros", "degree", "neighbour-cosine", "centred-cosine")
#: Methods that score arrivals one by one; those of the second line average scores over many hops.
ARRIVING: tuple[str, ...] = ("nodesafe-evidence", "evidence", "msp", "energy", "mahalanobis", "knn")
ARRIVING += ("nodesafe", "gnnsafe", "msp-prop", "nodesafe-ensemble")
ARRIVALS = ("label-scattered", "label-grouped", "feature-scattered", "structure-grouped")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

Note = Callable[..., None]
Unit = tuple[str, Callable[[Note], None]]


# --- adapters: the only places that know names which oddnode does not export -----------------------------------------


def published() -> Any:
    """The module of the published settings, with ``METHODS`` and ``detector``, wherever the source has it."""
    for name in ("oddnode.protocols.published", "oddnode.published"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError("this source has no published settings where they are looked for")


def published_methods() -> list[str]:
    return list(published().METHODS)


def published_detector(method: str, task: Task, backbone: str, **settings: Any) -> Detector:
    return published().detector(method, task, backbone, 0, "cpu", **settings)


def needs_exposure(detector: Detector) -> bool:
    """Whether the objective or the scorer of a detector learns from an exposure graph."""
    return any(getattr(part, "needs_exposure", False) for part in (detector, detector.objective, detector.scorer))


def parts_of(explanation: Any) -> list[Any]:
    """What an explanation holds, be it a dataclass or a tuple."""
    if is_dataclass(explanation):
        return [getattr(explanation, part.name) for part in fields(explanation)]
    return list(explanation)


def weights_of(model: Path) -> list[Tensor]:
    """The weights of a model that the command line has saved."""
    from oddnode.tables import TableModel

    return list(TableModel.load(model, "cpu").detector.module_.state_dict().values())


def threshold_of(model: Path) -> float:
    from oddnode.tables import TableModel

    return TableModel.load(model, "cpu").detector.threshold_


def runs_of(result: Any) -> Any:
    """What a benchmark found with every seed, without how long it took."""
    return [{k: v for k, v in run.items() if k not in ("seconds", "time", "wall_s")} for run in result.runs]


# --- what a detector says --------------------------------------------------------------------------------------------


def graphs_of(task: Task) -> dict[str, Data]:
    return {"id_test": task.id_test.data} | task.tests


def fitted(detector: Detector, task: Task) -> Detector:
    return detector.fit(task.train, task.exposure if needs_exposure(detector) else None)


def note_words(note: Note, what: str, say: Callable[[], Sequence[str | None]]) -> None:
    """Sentences, and apart from them the numbers that they tell."""
    note(f"{what}, wording", say)
    note(f"{what}, numbers", lambda: sorted(re.findall(r"\d+(?:[.,]\d+)*", " ".join(filter(None, say())))))


def observe(note: Note, detector: Detector, graphs: dict[str, Any]) -> None:
    """Training, weights, scores and probabilities."""
    note("best epoch and losses", lambda: [detector.best_epoch_, detector.history_])
    note("weights", lambda: list(detector.module_.state_dict().values()))
    note("names of weights", lambda: list(detector.module_.state_dict()))
    note_words(note, "advice", lambda: detector.advice_)
    for name, graph in graphs.items():
        note(f"scores of {name}", detector.score_samples, graph)
        note(f"probabilities of {name}", detector.predict_proba, graph)
        note(f"explanation of {name}", lambda graph=graph: tensors_in(detector, graph))


def tensors_in(detector: Detector, graph: Any) -> list[Tensor]:
    return [part for part in parts_of(detector.explain(graph)) if isinstance(part, Tensor)]


def observe_decisions(note: Note, detector: Detector, graphs: dict[str, Any], known: tuple[Any, Tensor]) -> None:
    """A threshold on the known nodes of a graph, and what follows from it."""
    note("threshold", lambda: detector.calibrate(known[0], 0.05, known[1]).threshold_)
    for name, graph in graphs.items():
        note(f"p-values of {name}", detector.p_values, graph)
        note(f"p-values per class of {name}", lambda graph=graph: detector.p_values(graph, per_class=True))
        note(f"detected of {name}", detector.detect, graph)
        note(f"flagged of {name}", detector.flag, graph)


def observe_reasons(note: Note, detector: Detector, graphs: dict[str, Any]) -> None:
    for name, graph in graphs.items():
        note(f"kinds of evidence of {name}, wording", lambda graph=graph: list(detector.explain(graph).kinds))
        note_words(note, f"reasons of {name}", partial(detector.reasons, graph))


def held_out(task: Task) -> tuple[Data, Tensor]:
    """Known nodes that training has not seen."""
    if not bool(task.train.test_mask.any()):  # arrivals
        return task.id_test.data, task.id_test.mask
    return task.train, task.train.test_mask & (task.train.y >= 0)


def observe_saved(note: Note, detector: Detector, task: Task) -> None:
    """The tensors of the saved folder, and the scores of the detector that is read from it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        detector.save(folder)
        saved = dict(sorted(load_file(folder / "model.safetensors").items()))
        weights = {k: v for k, v in saved.items() if k.startswith("module.")}
        scorer = {k: v for k, v in saved.items() if k.startswith("scorer.")}
        note("saved weights", lambda: weights)
        note("saved scorer", lambda: scorer)
        note("other saved tensors", lambda: {k: v for k, v in saved.items() if k not in weights | scorer})
        note("scores when loaded", loaded_scores, folder, detector, task)


def loaded_scores(folder: Path, detector: Detector, task: Task) -> Tensor:
    graph = task.id_test.data
    scores = oddnode.Detector.load(folder, device="cpu").score_samples(graph)
    if not torch.equal(scores, detector.score_samples(graph)):
        raise AssertionError("the loaded detector scores otherwise than the one that was saved")
    return scores


# --- units of work ---------------------------------------------------------------------------------------------------


def fit_clean(note: Note, task: str, method: str, settings: dict[str, Any], backbone: str = "gcn") -> None:
    loaded = oddnode.load_task(task)
    chosen: dict[str, Any] = {"seed": 0, "device": "cpu", "epochs": EPOCHS} | settings
    detector = fitted(oddnode.Detector.from_recipe(method, backbone, **chosen), loaded)
    observe(note, detector, graphs_of(loaded))
    note("evaluate", oddnode.evaluate, detector, loaded)
    observe_decisions(note, detector, graphs_of(loaded), held_out(loaded))
    if "evidence" in method:
        observe_reasons(note, detector, loaded.tests)
    observe_saved(note, detector, loaded)


def fit_published(note: Note, task: str, method: str, settings: dict[str, Any], backbone: str = "gcn") -> None:
    loaded = oddnode.load_task(task, protocol="published")
    detector = fitted(published_detector(method, loaded, backbone, **settings), loaded)
    observe(note, detector, graphs_of(loaded))
    note("evaluate", oddnode.evaluate, detector, loaded)
    observe_saved(note, detector, loaded)


def look_at_published(note: Note) -> None:
    note("methods", published_methods)


def fit_own_module(note: Note) -> None:
    """A network of the user's own, in double precision, without validation nodes."""
    task = oddnode.load_task("digits/label")
    del task.train.val_mask
    torch.manual_seed(0)
    module = oddnode.GCN(64, 16, 6).double()
    observe(note, oddnode.Detector(module, epochs=EPOCHS, device="cpu").fit(task.train), graphs_of(task))


def fit_random_edges(note: Note) -> None:
    """Edges that say nothing of the classes, where propagation is switched off by advice."""
    task = oddnode.load_task("digits/structure")
    task.train.edge_index = task.tests["structure"].edge_index
    detector = oddnode.Detector.from_recipe("nodesafe", epochs=EPOCHS, device="cpu")
    observe(note, detector.fit(task.train), graphs_of(task))


def wrap_module(note: Note) -> None:
    task = oddnode.load_task("digits/label")
    torch.manual_seed(0)
    module = oddnode.GCN(64, 16, 5)
    scorer = oddnode.Propagated(oddnode.Energy())
    observe(note, oddnode.Detector.wrap(module, scorer, task.train, device="cpu"), graphs_of(task))


def change_scorer(note: Note) -> None:
    """Every scorer on one training."""
    task = oddnode.load_task("digits/label")
    detector = oddnode.Detector.from_recipe("msp", epochs=EPOCHS, device="cpu").fit(task.train)
    inner = ("MaxSoftmax", "MaxLogit", "Energy", "ODIN", "KNN", "Mahalanobis", "Degree", "NonZeros", "NeighbourCosine")
    for name in inner:
        note(name, lambda name=name: scored_by(detector, task, getattr(oddnode, name)()))
    for name in ("Propagated", "GRASP"):
        note(name, lambda name=name: scored_by(detector, task, getattr(oddnode, name)(oddnode.MaxLogit())))


def scored_by(detector: Detector, task: Task, scorer: Any) -> Tensor:
    return detector.with_scorer(scorer).score_samples(task.id_test.data)


def run_benchmark(note: Note, seeds: int = 1, jobs: int = 1, **asked: Any) -> None:
    for result in oddnode.benchmark(seeds=seeds, jobs=jobs, device="cpu", **asked):
        note(result.method, runs_of, result)


def look_at_task(note: Note, task: str, protocol: Any) -> None:
    """The graphs themselves."""
    loaded = oddnode.load_task(task, protocol=protocol)
    graphs = {"train": loaded.train, "exposure": loaded.exposure} | graphs_of(loaded)
    for graph, data in graphs.items():
        if data is not None:
            note(graph, lambda data=data: dict(sorted(data.to_dict().items())))
    note("mask and numbers", lambda: [loaded.id_test.mask, loaded.num_classes, loaded.num_left_out])


# --- arrivals, sampled and stacked trainings, weights ----------------------------------------------------------------


def score_arrivals(note: Note, method: str) -> None:
    """Arrivals one by one: without edges, and with those to nodes of the training graph."""
    task = oddnode.load_task("digits/arrivals/label-scattered")
    detector = fitted(oddnode.Detector.from_recipe(method, device="cpu", epochs=EPOCHS), task)
    known, mask = held_out(task)
    detector.calibrate(known, 0.05, mask)
    note_arrivals(note, detector, task, weighted=False)


def note_arrivals(note: Note, detector: Detector, task: Task, weighted: bool) -> None:
    live, grown, num_known = oddnode.LiveGraph(detector, task.train), task.id_test.data, task.train.num_nodes
    source, target = grown.edge_index
    some = range(num_known, grown.num_nodes, max(1, (grown.num_nodes - num_known) // 20))
    links = {node: source[(target == node) & (source < num_known)].tolist() for node in some}
    for kind, neighbours in {"isolated": dict.fromkeys(some, ()), "linked": links}.items():
        found = []
        for node, near in neighbours.items():
            edges = [("new", other, *([1.0 + place % 3] if weighted else [])) for place, other in enumerate(near)]
            found += live.score(grown.x[node : node + 1], edges, ids=["new"])
        for name in ("score", "p_value", "is_ood"):
            note(f"arrivals {kind}, {name}", lambda found=found, name=name: [getattr(each, name) for each in found])


def fit_sampled(note: Note, backbone: str, method: str = "nodesafe", **settings: Any) -> None:
    from oddnode.training import MiniBatch

    task = oddnode.load_task("digits/feature")
    trainer = MiniBatch(num_neighbours=4, batch_size=32, num_random=64, **settings)
    detector = oddnode.Detector.from_recipe(method, backbone, device="cpu", epochs=12, trainer=trainer)
    observe(note, fitted(detector, task), graphs_of(task))


def fit_stacked(note: Note, method: str) -> None:
    """Three seeds, stacked and one after another."""
    from oddnode.detector import fit_together
    from oddnode.training import FullBatch

    task = oddnode.load_task("digits/feature")
    for stacked in (True, False):
        trainer, words = FullBatch(stacked=stacked), "stacked" if stacked else "one by one"
        settings: dict[str, Any] = {"device": "cpu", "epochs": EPOCHS, "trainer": trainer} | AS_GIVEN
        detectors = [oddnode.Detector.from_recipe(method, seed=seed, **settings) for seed in range(3)]
        fit_together(detectors, [task.train] * 3, [task.exposure if needs_exposure(detectors[0]) else None] * 3)
        for seed, detector in enumerate(detectors):
            observe(partial(note_with, note, f"{words}, seed {seed}"), detector, task.tests)


def note_with(note: Note, before: str, what: str, *rest: Any) -> None:
    note(f"{before}, {what}", *rest)


def fit_weighted(note: Note, method: str, directed: bool, backbone: str = "gcn") -> None:
    """Edges with weights, or that lead one way."""
    task = oddnode.load_task("digits/arrivals/label-scattered")
    for graph in (task.train, task.id_test.data):
        graph.edge_index, graph.edge_weight = weighted_edges(graph.edge_index, directed)
        graph.directed = directed
    detector = oddnode.Detector.from_recipe(method, backbone, device="cpu", epochs=EPOCHS).fit(task.train)
    observe(note, detector, task.tests)
    observe_decisions(note, detector, task.tests, held_out(task))
    observe_reasons(note, detector, task.tests)
    if not directed:
        note_arrivals(note, detector, task, weighted=True)


def weighted_edges(edge_index: Tensor, directed: bool) -> tuple[Tensor, Tensor | None]:
    source, target = edge_index
    if directed:
        return edge_index[:, source < target], None
    return edge_index, 1.0 + (source * target) % 7 / 4


def large_graph() -> Data:
    """So many nodes that networks are trained on packed rows, and that a graph on disk has several blocks."""
    generator = torch.Generator().manual_seed(0)
    num_nodes, num_edges = 150_000, 150_000
    y = torch.randint(3, (num_nodes,), generator=generator)
    x = torch.randn(num_nodes, 4, generator=generator) + y.unsqueeze(1)
    some, others = (torch.rand(num_edges, generator=generator).pow(power) * num_nodes for power in (3, 1))
    pairs = torch.stack([some.long(), others.long()])
    drawn = torch.rand(num_nodes, generator=generator)
    masks = {"train_mask": drawn < 0.005, "val_mask": drawn > 0.995, "test_mask": (drawn > 0.5) & (drawn < 0.51)}
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1), y=y, **masks)


def fit_large(note: Note, method: str, on_disk: bool) -> None:
    from oddnode.large import folder_from_data

    data = large_graph()
    with tempfile.TemporaryDirectory() as name:
        graph = folder_from_data(data, Path(name) / "graph") if on_disk else data
        detector = oddnode.Detector.from_recipe(method, device="cpu", epochs=5).fit(graph)
        observe(note, detector, {"all": graph})
        observe_decisions(note, detector, {"all": graph}, (graph, data.test_mask))


# --- graphs on disk --------------------------------------------------------------------------------------------------


def fit_folder_from_python(note: Note, method: str, backbone: str = "gcn", weighted: bool = False) -> None:
    from oddnode.large import folder_from_data

    task = oddnode.load_task("digits/feature")
    if weighted:
        for graph in (task.train, *task.tests.values()):
            graph.edge_index, graph.edge_weight = weighted_edges(graph.edge_index, directed=False)
    with tempfile.TemporaryDirectory() as name:
        graphs = {"train": task.train} | task.tests
        folders = {graph: folder_from_data(data, Path(name) / graph) for graph, data in graphs.items()}
        exposure = folder_from_data(task.exposure, Path(name) / "exposure") if task.exposure is not None else None
        detector = oddnode.Detector.from_recipe(method, backbone, device="cpu", epochs=20)
        detector.fit(folders["train"], exposure if needs_exposure(detector) else None)
        observe(note, detector, folders)
        observe_decisions(note, detector, folders, (folders["train"], held_out(task)[1]))
        if "evidence" in method:
            observe_reasons(note, detector, folders)


def look_at_built_folder(note: Note, weighted: bool) -> None:
    """A folder from chunks of nodes and of edges."""
    from oddnode.large import GraphFolder, NodeChunk, build_folder

    graph = oddnode.load_task("digits/label").train
    edges, weight = weighted_edges(graph.edge_index, directed=False)
    assert weight is not None
    cuts = [slice(start, start + 1000) for start in range(0, edges.shape[1], 1000)]
    nodes = [
        NodeChunk(graph.x[start : start + 100].numpy(), graph.y[start : start + 100].numpy())
        for start in range(0, graph.num_nodes, 100)
    ]
    parts = [(edges[:, cut].numpy(), weight[cut].numpy()) if weighted else edges[:, cut].numpy() for cut in cuts]
    with tempfile.TemporaryDirectory() as name:
        note_folder(note, "built", build_folder(Path(name) / "graph", nodes, parts))
        note_folder(note, "opened again", GraphFolder(Path(name) / "graph"))


def note_folder(note: Note, step: str, folder: GraphFolder) -> None:
    for name in ("x", "offsets", "sources", "edge_weight", "y", "train_mask", "val_mask", "calibration_mask"):
        value = getattr(folder, name)
        if value is not None:
            note(f"{step}, {name}", lambda value=value: value)


def use_prepared_graph(note: Note, method: str) -> None:
    """Everything that the command line does with a graph on disk; also with one of other nodes."""
    from oddnode.large import GraphFolder

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, exposure=False, kind="parquet", weighted=True)
        tables = ["--nodes", "nodes.parquet", "--edges", "edges.parquet"]
        columns = ["--id-column", "image", "--label-column", "digit", "--drop-columns", "row"]
        settings = ["--device", "cpu", "--graph", "graph"]
        later = ["--nodes", "later.parquet", "--edges", "edges.parquet", "--label-column", "digit"]
        steps = {
            "prepare": ["prepare", *tables, *columns, "--split-column", "part", "--out", "graph"],
            "fit": ["fit", *settings, "--method", method, "--set", "epochs=40", "--out", "first"],
            "score": ["score", "first", *settings, "--out", "first.parquet", "--explain"],
            "calibrate": ["calibrate", "first", *settings, "--false-alarm-rate", "0.1", "--out", "second"],
            "score again": ["score", "second", *settings, "--out", "second.csv"],
            "prepare others": ["prepare", *later, "--ignore-unknown-edges", "--model", "first", "--out", "others"],
            "score others": ["score", "first", *settings[:2], "--graph", "others", "--out", "others.csv"],
        }
        for step, words in steps.items():
            note_report(note, step, folder, words)
        note_outcomes(note, folder)
        for graph in ("graph", "others"):
            note_folder(note, graph, GraphFolder(folder / graph))
            note(f"{graph}, ids", lambda graph=graph: GraphFolder(folder / graph).ids().tolist())


def use_ranks(note: Note, method: str) -> None:
    """Two ranks on a graph of several blocks."""
    from pyarrow import parquet, table

    with tempfile.TemporaryDirectory() as name:
        folder, graph = Path(name), large_graph()
        labels = ["abc"[y] if known else None for y, known in zip(graph.y.tolist(), held(graph), strict=True)]
        columns = {f"f{i}": values.numpy() for i, values in enumerate(graph.x.t())}
        parquet.write_table(table({"id": range(graph.num_nodes), "label": labels} | columns), folder / "nodes.parquet")
        half = graph.edge_index[:, : graph.num_edges // 2].numpy()
        parquet.write_table(table({"source": half[0], "target": half[1]}), folder / "edges.parquet")
        tables = ["--nodes", "nodes.parquet", "--edges", "edges.parquet", "--id-column", "id"]
        command(folder, "prepare", *tables, "--label-column", "label", "--out", "graph")
        settings = ["--device", "cpu", "--graph", "graph"]
        fit = ["fit", *settings, "--method", method, "--set", "epochs=5", "--out", "first"]
        done(folder, *TORCHRUN, "-m", "oddnode", *fit)
        done(folder, *TORCHRUN, "-m", "oddnode", "score", "first", *settings, "--out", "first.parquet")
        note_outcomes(note, folder)


def held(graph: Data) -> list[bool]:
    return (graph.train_mask | graph.val_mask | graph.test_mask).tolist()


# --- tables through the command line ---------------------------------------------------------------------------------


def done(folder: Path, *words: str) -> str:
    """What Python prints, run in a folder."""
    ran = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return ran.stdout


def command(folder: Path, *words: str) -> Any:
    """What ``oddnode ... --json`` prints; run in this process, because it takes seconds to import torch again."""
    printed, said, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["oddnode", *words, "--json"]
    try:
        with chdir(folder), redirect_stdout(printed), redirect_stderr(said):
            runpy.run_module("oddnode", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(said.getvalue()) from None
    finally:
        sys.argv = before
    return json.loads(printed.getvalue())


def use_tables(note: Note, exposure: bool) -> None:
    """Fit, score, calibrate and score again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, exposure)
        tables = ["--edges", "edges.csv", "--device", "cpu", "--nodes"]
        columns = ["--id-column", "image", "--label-column", "digit"]
        columns += ["--exposure-column", "odd"] if exposure else []
        known = ["--known-column", "ok", "--false-alarm-rate", "0.1"]
        steps = {
            "fit": ["fit", *tables, "nodes.csv", *columns, "--out", "first"],
            "score": ["score", "first", *tables, "nodes.csv", "--out", "first.csv", "--explain"],
            "calibrate": ["calibrate", "first", *tables, "known.csv", *known, "--out", "second"],
            "score again": ["score", "second", *tables, "nodes.csv", "--out", "second.csv"],
        }
        for step, words in steps.items():
            note_report(note, step, folder, words)
        note_outcomes(note, folder)


def use_parquet_tables(note: Note, method: str) -> None:
    """Edges with weights, two files of nodes, a column that splits; another rate without tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, exposure=False, kind="parquet", weighted=True)
        tables = ["--edges", "edges.parquet", "--device", "cpu", "--nodes"]
        columns = ["--id-column", "image", "--label-column", "digit", "--split-column", "part", "--drop-columns", "row"]
        more = ["--method", method, "--false-alarm-rate", "0.02", "--set", "epochs=40", "--seed", "3"]
        steps = {
            "fit": ["fit", *tables, "early.parquet", "--nodes", "later.parquet", *columns, *more, "--out", "first"],
            "score": ["score", "first", *tables, "nodes.parquet", "--out", "first.parquet", "--explain"],
            "calibrate": ["calibrate", "first", "--device", "cpu", "--false-alarm-rate", "0.1", "--out", "second"],
            "score again": [
                *("score", "second", *tables, "later.parquet", "--ignore-unknown-edges", "--out", "second.parquet")
            ],
        }
        for step, words in steps.items():
            note_report(note, step, folder, words)
        note_outcomes(note, folder)


def use_tables_with_times(note: Note) -> None:
    """Later rows are arrivals; edges lead one way."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, exposure=False)
        tables = ["--edges", "edges.csv", "--device", "cpu", "--nodes", "early.csv", "--nodes", "later.csv"]
        columns = ["--id-column", "image", "--label-column", "digit", "--drop-columns", "part", "--directed"]
        until = ["--time-column", "row", "--train-until", "1300", "--set", "epochs=40", "--category-columns", "paper"]
        steps = {
            "fit": ["fit", *tables, *columns, *until, "--out", "first"],
            "score": ["score", "first", *tables, "--out", "first.csv", "--explain"],
        }
        for step, words in steps.items():
            note_report(note, step, folder, words)
        note_outcomes(note, folder)


def use_table_model(note: Note) -> None:
    """Tables from Python, in memory."""
    from pyarrow import csv as arrow_csv

    from oddnode.tables import TableModel

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, exposure=True)
        nodes, edges, known = (arrow_csv.read_csv(folder / f"{each}.csv") for each in ("nodes", "edges", "known"))
        columns: dict[str, Any] = {"id_column": "image", "label_column": "digit", "exposure_column": "odd"}
        model, report = TableModel.fit(nodes, edges, **columns, method="nodesafe++", epochs=40, device="cpu")
        note_facts(note, "fit", report.as_dict())
        note_facts(note, "score", model.score(nodes, edges, folder / "first.parquet", explain=True).as_dict())
        note_facts(note, "calibrate", model.calibrate(known, edges, "ok", 0.1).as_dict())
        model.save(folder / "second")
        note_facts(note, "score again", model.score(nodes, edges, folder / "second.parquet").as_dict())
        note_outcomes(note, folder)


def note_report(note: Note, step: str, folder: Path, words: list[str]) -> None:
    """Each number that a command tells."""
    try:
        facts = command(folder, *words)
    except RuntimeError as error:
        note(step, raised, error)
        return
    note_facts(note, step, facts)


def note_facts(note: Note, step: str, facts: dict[str, Any]) -> None:
    for key, value in facts.items():
        if key == "notes":
            note_words(note, f"{step}, report, {key}", partial(list, value))
        else:
            note(f"{step}, report, {key}", lambda value=value: value)


def note_outcomes(note: Note, folder: Path) -> None:
    """The models and tables of scores that steps have left in a folder."""
    steps = {"first": "score", "second": "score again", "others": "score others"}
    for name, step in steps.items():
        for file in folder.glob(f"{name}.*"):
            note_columns(note, step, file)
        if (folder / name).is_dir() and name != "others":
            note(f"{name} model, weights", weights_of, folder / name)
            note(f"{name} model, threshold", threshold_of, folder / name)


def note_columns(note: Note, step: str, file: Path) -> None:
    """Each column of a table of scores; a renamed one can be told by its hash."""
    for column, values in columns_of(file).items():
        if column == "why":
            note_words(note, f"{step}, column, {column}", partial(list, values))
        else:
            note(f"{step}, column, {column}", lambda values=values: values)


def columns_of(file: Path) -> dict[str, list[Any]]:
    if file.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(file).to_pydict()
    with file.open(newline="") as opened:
        head, *rows = csv.reader(opened)
    return dict(zip(head, map(list, zip(*rows, strict=True)), strict=True))


def raised(error: Exception) -> None:
    raise error


def write_tables(folder: Path, exposure: bool, kind: str = "csv", weighted: bool = False) -> None:
    """The digits as tables: 0 to 4 are known, some of them without a label; 5 is known not to belong."""
    graph = oddnode.load_task("digits/feature").train
    digits = graph.y.tolist()
    ids = [f"img-{i:04d}" for i in range(len(digits))]
    labelled = [y < 5 and i % 3 > 0 for i, y in enumerate(digits)]
    nodes: dict[str, list[Any]] = {
        "image": ids,
        "digit": [f"digit {y}" if known else None for y, known in zip(digits, labelled, strict=True)],
        "paper": [("white", "grey", None, "yellow")[i * i % 7 % 4] for i in range(len(ids))],
    }
    nodes |= {f"pixel_{place}": values for place, values in enumerate(graph.x.t().tolist())}
    if exposure:
        nodes["odd"] = ["true" if y == 5 else "false" for y in digits]
    further = nodes | {"row": list(range(len(ids))), "part": parts_of_rows(labelled)}
    write_table(folder / f"nodes.{kind}", further if kind == "parquet" else nodes)
    held_out = [y < 5 and not known for y, known in zip(digits, labelled, strict=True)]
    write_table(folder / f"known.{kind}", nodes | {"ok": ["true" if each else "false" for each in held_out]})
    for name, rows in {"early": slice(0, 1200), "later": slice(1200, None)}.items():
        write_table(folder / f"{name}.{kind}", {column: values[rows] for column, values in further.items()})
    source, target = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].tolist()
    edges: dict[str, list[Any]] = {"source": [ids[i] for i in source], "target": [ids[i] for i in target]}
    if weighted:
        edges["weight"] = [1 + i * j % 7 / 4 for i, j in zip(source, target, strict=True)]
    write_table(folder / f"edges.{kind}", edges)


def parts_of_rows(labelled: list[bool]) -> list[str | None]:
    parts = ("train", "validation", "train", "calibration", "calibration")
    return [parts[i % 5] if known else None for i, known in enumerate(labelled)]


def write_table(file: Path, columns: dict[str, list[Any]]) -> None:
    if file.suffix == ".parquet":
        from pyarrow import parquet, table

        parquet.write_table(table(columns), file)
        return
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


# --- all of them -----------------------------------------------------------------------------------------------------


def units(data_sets: list[str]) -> Iterator[Unit]:
    """The whole work, by name; of real data only the data sets that are here."""
    yield from units_on_digits()
    yield from units_published_on_digits()
    for protocol, task, method, backbone, epochs in REAL:
        if task.split("/")[0] in data_sets:
            yield (
                f"{protocol} {task} {method} {backbone}",
                partial(
                    fit_clean if protocol == "clean" else fit_published,
                    task=task,
                    method=method,
                    backbone=backbone,
                    settings={"epochs": epochs} | (AS_GIVEN if protocol == "clean" else {}),
                ),
            )
    for data_set in ("digits", *data_sets):
        for shift in ("",) if data_set == "twitch" else ("/structure", "/feature", "/label"):
            for protocol in ("clean", "published"):
                name = f"{data_set}{shift}"
                yield f"task {name} {protocol}", partial(look_at_task, task=name, protocol=protocol)
    yield "benchmark digits/structure", partial(run_benchmark, tasks="digits/structure")
    several: dict[str, Any] = {"tasks": "digits/label", "methods": ["msp", "nodesafe", "oe"], "seeds": 3, "jobs": 2}
    yield "benchmark three seeds", partial(run_benchmark, **several)
    yield from units_of_arrivals(data_sets)
    yield from units_of_training()
    yield from units_on_disk()
    yield "tables", partial(use_tables, exposure=False)
    yield "tables with exposure", partial(use_tables, exposure=True)
    for method in ("nodesafe", "nodesafe-evidence"):
        yield f"tables parquet {method}", partial(use_parquet_tables, method=method)
    yield "tables with times", use_tables_with_times
    yield "tables python", use_table_model


def units_of_arrivals(data_sets: list[str]) -> Iterator[Unit]:
    fit: dict[str, Any] = {"method": "nodesafe-evidence", "settings": {}}
    for kind in ARRIVALS:
        yield f"arrivals digits {kind}", partial(fit_clean, task=f"digits/arrivals/{kind}", **fit)
    if "cora" in data_sets:
        for kind in ARRIVALS[:3]:
            yield f"arrivals cora {kind}", partial(fit_clean, task=f"cora/arrivals/{kind}", **fit)
    for method in ARRIVING:
        yield f"arrival scorer {method}", partial(score_arrivals, method=method)
    for method in ("nodesafe-evidence", "nodesafe"):
        yield f"weighted edges {method}", partial(fit_weighted, method=method, directed=False)
        yield f"directed edges {method}", partial(fit_weighted, method=method, directed=True)
    yield "weighted edges nodesafe gat", partial(fit_weighted, method="nodesafe", directed=False, backbone="gat")


def units_of_training() -> Iterator[Unit]:
    for backbone in BACKBONES:
        yield f"mini-batch nodesafe {backbone}", partial(fit_sampled, backbone=backbone)
    yield "mini-batch oe gcn", partial(fit_sampled, backbone="gcn", method="oe")
    yield "mini-batch nodesafe gcn, two batches", partial(fit_sampled, backbone="gcn", batches_per_epoch=2)
    for method in ("nodesafe", "nodesafe++", "oe", "gnnsafe++", "nodesafe-evidence", "nodesafe-ensemble"):
        yield f"several seeds {method}", partial(fit_stacked, method=method)
    for method in ("nodesafe", "nodesafe-evidence"):
        yield f"large in memory {method}", partial(fit_large, method=method, on_disk=False)


def units_on_disk() -> Iterator[Unit]:
    for weighted in (False, True):
        words = ", weighted" if weighted else ""
        yield f"disk, built from chunks{words}", partial(look_at_built_folder, weighted=weighted)
    for method in ON_DISK:
        yield f"disk python {method}", partial(fit_folder_from_python, method=method)
    yield "disk python oe", partial(fit_folder_from_python, method="oe")
    for backbone in BACKBONES[1:]:
        yield f"disk python nodesafe {backbone}", partial(fit_folder_from_python, method="nodesafe", backbone=backbone)
    for method in ("nodesafe", "nodesafe-evidence"):
        name = f"disk python {method}, weighted"
        yield name, partial(fit_folder_from_python, method=method, weighted=True)
        yield f"disk command line {method}", partial(use_prepared_graph, method=method)
        yield f"disk, several blocks {method}", partial(fit_large, method=method, on_disk=True)
        yield f"disk, two ranks {method}", partial(use_ranks, method=method)


def units_on_digits() -> Iterator[Unit]:
    fit = partial(fit_clean, task="digits/label", settings=AS_GIVEN)
    for method in oddnode.RECIPES:
        yield f"clean digits/label {method}", partial(fit, method=method)
    fit = partial(fit_clean, task="digits/feature", settings=AS_GIVEN)
    for backbone in BACKBONES:
        for method in ("nodesafe", "gnnsafe++"):
            yield f"clean digits/feature {method} {backbone}", partial(fit, method=method, backbone=backbone)
    for name, settings in SETTINGS.items():
        yield f"settings {name}", partial(fit_clean, task="digits/label", method="nodesafe", settings=settings)
    yield "own module", fit_own_module
    yield "random edges", fit_random_edges
    yield "wrapped module", wrap_module
    yield "scorers", change_scorer


def units_published_on_digits() -> Iterator[Unit]:
    yield "published", look_at_published
    try:
        methods = published_methods()
    except (ImportError, AttributeError):  # the unit above has it
        methods = []
    for method in methods:
        settings = {"epochs": PUBLISHED_EPOCHS.get(method, EPOCHS)}
        yield (
            f"published digits/label {method}",
            partial(fit_published, task="digits/label", method=method, settings=settings),
        )
    asked: dict[str, Any] = {
        "tasks": "digits/label",
        "methods": ["msp", "nodesafe", "nodesafe++"],
        "protocol": "published",
    }
    yield "benchmark published digits/label", partial(run_benchmark, **asked)
