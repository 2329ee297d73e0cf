"""The page's data: from the store, through the model, into one file."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jinja2 import UndefinedError

from oddnode.evaluation import Result
from oddnode.functional import fpr_at_tpr
from oddnode.paper import report
from oddnode.paper.experiments import SCOPES, choose_items
from oddnode.paper.plan import Plan, make_plan
from oddnode.paper.report import make_page
from oddnode.paper.store import Store
from oddnode.paper.webpage import Cell, Method, Nodes, Page, Scores, render, write_html
from oddnode.paper.webpage.html import encode
from oddnode.paper.webpage.opening import choose_opening, compare_pairs
from oddnode.tasks import MissingDataError, load_task
from oddnode.webpage import KNOWN, OTHER, UNKNOWN, Source, draw_picture, html
from tests.paper_helpers import run


def decoded(encoded: dict[str, Any], number: int) -> np.ndarray:
    kind, text = encoded["arrays"][number]
    return np.frombuffer(base64.b64decode(text), dtype=f"<{kind}")


def result(task: str, method: str, fprs: list[float], protocol: str = "clean") -> Result:
    runs = [{"auroc": 90.0, "aupr": 80.0, "fpr95": fpr, "id_acc": 70.0} for fpr in fprs]
    return Result(task, method, protocol, "gcn", runs)


def large_cell(num_known: int, num_unknown: int) -> Cell:
    rng = np.random.default_rng(0)

    def nodes(size: int) -> Nodes:
        return Nodes(np.arange(size) + 7, rng.integers(0, 9, size), rng.integers(0, 3, size))

    def scores(size: int) -> Scores:
        return Scores(np.arange(size) / 2, rng.integers(0, 3, size))

    methods = {m: {"id": scores(num_known), "late": scores(num_unknown)} for m in ("msp", "energy")}
    return Cell("some/task", "clean", 0, nodes(num_known), {"late": nodes(num_unknown)}, methods)


def test_pairs_have_their_means_their_wins_and_what_the_paper_prints() -> None:
    [pair] = compare_pairs(
        [
            result("cora/structure", "nodesafe", [20.0, 30.0]),
            result("cora/structure", "gnnsafe", [50.0, 60.0]),
            result("cora/label", "nodesafe", [36.0, 34.0]),
            result("cora/label", "gnnsafe", [31.0, 33.0]),
            result("cora/feature", "nodesafe", [1.0, 1.0]),  # without its rival
        ]
    )
    assert (pair.ours, pair.best) == ((30.0, 43.5), (True, False))
    assert pair.sentence == "NODESAFE lets fewer unknown nodes through than GNNSafe in 1 of 2 tasks."
    # Printed: 25.63 and 29.41 for NODESAFE, 73.15 and 30.83 for GNNSafe.
    assert pair.printed == pytest.approx((27.52, 51.99))
    [equal] = compare_pairs([result("digits/label", method, [1.0]) for method in ("nodesafe", "gnnsafe")])
    assert (equal.best, equal.printed) == ((True, True), None)
    assert compare_pairs([]) == []


def found_cell(task: str, **scores: tuple[list[float], list[float]]) -> Cell:
    """A cell with 20 known and 10 unknown nodes, and the scores of every method for them."""
    none = np.zeros(20, dtype=int)
    nodes = [Nodes(np.arange(size) + 100, none[:size], none[:size]) for size in (20, 10)]
    methods = {
        name: {"id": Scores(np.array(known), none), "new": Scores(np.array(unknown), none[:10])}
        for name, (known, unknown) in scores.items()
    }
    return Cell(task, "clean", 0, nodes[0], {"new": nodes[1]}, methods, unknown_name="strangers")


def test_the_page_opens_with_what_a_method_finds_at_a_threshold_that_accepts_95_percent() -> None:
    known = [float(value) for value in range(20)]  # 19 of 20 are at or above 1
    good = (known, [0.5] * 7 + [1.0] * 3)
    better = (known, [0.0] * 8 + [5.0] * 2)
    cells = [found_cell("some/structure", good=good), found_cell("some/label", good=good, better=better, told=better)]
    page = Page([], cells, featured=("absent", "good"), methods={"told": Method(needs_exposure=True)})
    opening = choose_opening(page)
    assert opening is not None
    assert (opening.index, opening.method, opening.beside) == (1, "good", "better")
    assert opening.sentence == "good finds 7 of the 10 strangers, with 1 false alarm among 20 known ones."
    assert opening.standing == "Of the other methods, 1 of 1 finds more, better the most (80.0 %)."
    assert opening.reason == opening.example_name == ""
    [alone] = [choose_opening(Page([], cells[:1]))]
    assert alone is not None
    assert (alone.method, alone.beside, alone.standing) == ("good", "good", "")
    best = choose_opening(replace(page, featured=("better",)))
    assert best is not None
    assert best.standing == "None of the other methods (1) finds more."
    assert choose_opening(Page([])) is None
    # The example is the oddest of the flagged unknown nodes that have a reason.
    cell = found_cell("some/label", good=(known, [-3.0, -2.0, -1.0, 4.0, *[0.5] * 6]))
    why = np.array(["", "because", "since", "in spite of its score", *[""] * 6], dtype=object)
    told = replace(cell.methods["good"]["new"], why=why)
    opening = choose_opening(Page([], [replace(cell, methods={"good": cell.methods["good"] | {"new": told}})]))
    assert opening is not None
    assert (opening.example_name, opening.reason) == ("Node 101", "because")


def test_large_graphs_are_shown_in_part_and_every_method_on_the_same_nodes() -> None:
    pytest.importorskip("plotly")
    cell = large_cell(400_000, 1_000)
    encoded = encode(Page([], [cell, replace(cell, protocol="published")]))
    shown, again = encoded["cells"]
    assert shown["methods"] == again["methods"]  # equal arrays are stored once
    assert len({text for _, text in encoded["arrays"]}) == len(encoded["arrays"])
    ids = decoded(encoded, shown["nodes"]["id"]["ids"])
    assert shown["nodes"]["id"]["total"] == 400_000
    assert 1_000 < len(ids) < 200_000
    for method in ("msp", "energy"):
        values = decoded(encoded, shown["methods"][method]["id"]["values"])
        np.testing.assert_array_equal(values, (ids - 7) / 2)
    np.testing.assert_array_equal(decoded(encoded, shown["nodes"]["late"]["ids"]), cell.unknown["late"].ids)
    assert len(render(Page([], [cell]))) < 8e6


def test_methods_are_marked_as_the_page_is_told_and_numbers_that_are_none_are_gaps() -> None:
    marks = {"degree": Method(is_model_free=True), "oe": Method(needs_exposure=True)}
    results = [result("digits/label", name, [float("nan")]) for name in ("degree", "oe", "new")]
    encoded = encode(Page(results, methods=marks))
    every = ["auroc", "aupr", "fpr95", "id_acc"]
    assert [list(row["numbers"]) for row in encoded["rows"]] == [every[:3], every, every]
    assert encoded["rows"][0]["numbers"]["fpr95"] == {"seeds": [None], "printed": None}
    assert encoded["methods"] == {
        "degree": {"exposure": False, "model_free": True},
        "oe": {"exposure": True, "model_free": False},
        "new": {"exposure": False, "model_free": False},
    }


def test_a_picture_has_the_edges_of_the_graph_between_its_nodes() -> None:
    task = load_task("digits/label")
    graph = task.tests["label"]
    edges = graph.edge_index.numpy()
    kind = np.where(graph.ood_mask, UNKNOWN, np.where(task.id_test.mask, KNOWN, OTHER))
    scores = {"m": np.arange(len(kind), dtype=float)}
    picture = draw_picture([Source("label", edges, kind, graph.y.numpy(), scores, {"m": kind})], num_nodes=200)
    assert len(picture.ids) == len(set(picture.ids.tolist())) == 200
    assert set(picture.kind.tolist()) == {KNOWN, UNKNOWN, OTHER}
    drawn = {tuple(sorted(pair)) for pair in picture.ids[picture.edges].T.tolist()}
    inside = set(picture.ids.tolist())
    assert drawn == {tuple(sorted(p)) for p in edges.T.tolist() if p[0] != p[1] and inside.issuperset(p)}
    np.testing.assert_array_equal(picture.scores["m"], picture.ids)
    np.testing.assert_array_equal(picture.kind, kind[picture.ids])


def test_two_graphs_are_drawn_side_by_side_and_graphs_without_edges_can_be() -> None:
    ring = np.stack([np.arange(30), np.roll(np.arange(30), 1)])
    kinds = np.zeros(30, dtype=int)
    sources = [Source(name, ring, kinds, kinds, {"m": kinds * 1.0}, {"m": kinds}) for name in ("id", "es")]
    picture = draw_picture(sources, num_nodes=100)
    assert picture.graphs == ["id", "es"]
    assert len(picture.ids) == 60
    assert picture.place[picture.graph == 0, 0].max() < picture.place[picture.graph == 1, 0].min()
    assert not (picture.graph[picture.edges[0]] != picture.graph[picture.edges[1]]).any()
    none, kinds = np.zeros((2, 0), dtype=int), np.repeat([KNOWN, UNKNOWN], 40)
    picture = draw_picture([Source("x", none, kinds, kinds, {}, {})], num_nodes=20)
    assert len(picture.ids) == 20
    assert np.isfinite(picture.place).all()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Plan]]:
    scope = replace(SCOPES["smoke"], citation=("digits/label", "digits/feature"), others=(), epochs=2, seeds=2)
    plan = make_plan(scope, choose_items(["claims"]), protocols=("clean",))
    run(plan, folder := tmp_path_factory.mktemp("runs"))
    with Store(folder) as store:
        yield store, plan


def test_the_page_has_what_the_store_has(runs: tuple[Store, Plan]) -> None:
    store, plan = runs
    page = make_page(store, plan)
    assert {(r.task, r.method, r.seeds) for r in page.results} == {
        (task, method, 2)
        for task in ("digits/label", "digits/feature")
        for method in ("gnnsafe", "nodesafe", "gnnsafe++", "nodesafe++")
    }
    by_name = {(r.task, r.method): r for r in page.results}
    for cell in page.cells:
        [test] = cell.unknown
        for method, scores in cell.methods.items():
            fpr = 100 * fpr_at_tpr(scores["id"].values, scores[test].values)
            assert fpr == pytest.approx(by_name[cell.task, method].runs[cell.seed]["fpr95"])
            right = np.mean(scores["id"].predicted == cell.known.y)
            assert 100 * right == pytest.approx(by_name[cell.task, method].runs[cell.seed]["id_acc"])
    label = page.cells[0]
    assert label.unknown["label"].shown is not None
    assert set(label.unknown["label"].shown.tolist()) == {6, 7, 8, 9}
    assert "torch" in page.terms["Made on"]
    assert page.methods["nodesafe++"] == Method(needs_exposure=True)
    assert page.methods["nodesafe"] == Method()
    assert page.methods["degree"] == Method(is_model_free=True)
    assert [table.as_json()["title"] for table in page.tables] == [
        "Mean reduction of FPR95 by the paper's term, per OOD type (abstract and section 4.2)"
    ]


def test_the_file_needs_nothing_else(runs: tuple[Store, Plan], tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    store, plan = runs
    text = write_html(make_page(store, plan), tmp_path / "report.html").read_text(encoding="utf-8")
    assert (
        re.findall(r"(?:src|href)=[\"'](?!#|data:)", re.sub(r'<a href="https://[^"]*" rel="[a-z ]*">', "", text)) == []
    )
    packed = dict(re.findall(r'<script type="application/gzip" id="(\w+)">([^<]*)</script>', text))
    data = json.loads(gzip.decompress(base64.b64decode(packed["data"])))
    assert len(data["cells"]) == 2
    assert b"Plotly" in gzip.decompress(base64.b64decode(packed["plotly"]))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_page_and_its_data_load_no_torch() -> None:
    code = "import sys, oddnode.paper.webpage.model; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_names_cannot_break_the_page() -> None:
    pytest.importorskip("plotly")
    addresses = ["https://a.example", "http://b.example", "javascript:alert(1)"]  # only the first becomes a link
    page = Page([], title="</title><script>alert(1)</script>", terms={"<b>": "</dd><script>"}, notice="<i>")
    text = render(replace(page, links={f"Link {i}": address for i, address in enumerate(addresses)}))
    assert re.findall(r'<a href="([^#"][^"]*)"', text) == addresses[:1]
    assert "<script>alert" not in text
    assert "</dd><script>" not in text
    assert "<i>" not in text.split("<main>")[1].split("</section>")[0]
    with pytest.raises(UndefinedError, match="'missing' is undefined"):
        html.templates("oddnode.paper.webpage").from_string("{{ missing }}").render()


def test_without_the_data_a_page_has_no_drawing(runs: tuple[Store, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any) -> None:
        raise MissingDataError("gone")

    monkeypatch.setattr(report, "load_task", gone)
    page = make_page(*runs)
    assert len(page.cells) == 2
    assert all(cell.picture is None and cell.known.pixels is None for cell in page.cells)


def test_a_damaged_record_makes_way_for_another_seed(runs: tuple[Store, Plan], tmp_path: Path) -> None:
    store, plan = runs
    with sqlite3.connect(tmp_path / "runs.sqlite") as copy:
        store._db.backup(copy)
        copy.execute("UPDATE trainings SET arrays = x'00' WHERE seed = 0 AND task = 'digits/label'")
    copy.close()
    with Store(tmp_path) as damaged:
        seeds = {cell.task: cell.seed for cell in make_page(damaged, plan).cells}
    assert seeds == {"digits/label": 1, "digits/feature": 0}


def test_a_missing_plotting_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    html.packed_plotly.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(
        RuntimeError, match=r"the report needs plotly; install it with: pip install 'oddnode\[report\]'"
    ):
        render(Page([]))
