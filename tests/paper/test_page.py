"""The page of results, from results that are known."""

from __future__ import annotations

from pathlib import Path

from markdown_it import MarkdownIt

from oddnode.bench.tables import compare_table
from oddnode.evaluation import Result
from oddnode.paper.outputs import accuracy_table, backbone_table, grids, results_page, summary_table
from oddnode.paper.results import Results
from oddnode.paper.store import Store
from tests.paper_helpers import CODE, record_facts, result_of, tiny_plan


def fake(task: str, method: str, auroc: float, backbone: str = "gcn") -> Result:
    return result_of(task, method, auroc, auroc, backbone=backbone)


def test_methods_and_tasks_make_one_grid_with_the_model_free_scores_last() -> None:
    results = [
        fake("cora/label", "degree", 50.0),
        fake("cora/label", "msp", 80.0),
        fake("twitch", "msp", 90.0),
        fake("twitch", "degree", 40.0),
    ]
    [grid] = grids(results)
    table = compare_table(grid)
    assert "| msp | 80.0±0.0 / 20.0±0.0 | 90.0±0.0 / 10.0±0.0 | **85.0 / 15.0** |" in table
    assert table.index("| msp |") < table.index("| *degree* |")
    assert "2 seeds" in table


def test_a_method_that_misses_a_task_gets_a_grid_of_its_own() -> None:
    results = [fake("cora/label", "msp", 80.0), fake("twitch", "msp", 90.0), fake("cora/label", "knn", 70.0)]
    everywhere, rest = grids(results)
    assert "| msp | 80.0±0.0 / 20.0±0.0 | 90.0±0.0 / 10.0±0.0 | **85.0 / 15.0** |" in compare_table(everywhere)
    assert "| knn | 70.0±0.0 / 30.0±0.0 | **70.0 / 30.0** |" in compare_table(rest)


def test_the_summary_averages_by_kind_of_shift() -> None:
    results = [fake("cora/label", "msp", 80.0), fake("citeseer/label", "msp", 70.0), fake("twitch", "msp", 90.0)]
    table = summary_table(results)
    assert "| method | exposure | label | twitch | mean of 3 cells | the paper prints |" in table
    assert "| msp | no | 75.0 / 25.0 | 90.0 / 10.0 | **80.0 / 20.0** | 71.1 / 61.5 |" in table


def test_accuracy_leaves_out_scores_that_classify_nothing() -> None:
    table = accuracy_table([fake("twitch", "msp", 90.0), fake("twitch", "degree", 40.0)])
    assert "| msp | 80.0±0.0 | **80.0** |" in table
    assert "degree" not in table


def test_backbones_are_compared_in_one_table() -> None:
    table = backbone_table([fake("cora/label", "nodesafe", 80.0), fake("cora/label", "nodesafe", 60.0, "mlp")])
    assert "| gcn | 80.0±0.0 / 20.0±0.0 |" in table
    assert "| mlp | 60.0±0.0 / 40.0±0.0 | **60.0 / 40.0** |" in table


def test_the_page_names_absent_data_but_no_folder(tmp_path: Path) -> None:
    plan = tiny_plan("table1")
    plan.absent = {"arxiv": "no files in /data"}
    with Store(tmp_path, CODE) as store:
        page = results_page(Results(plan, store), "oddnode paper")
    assert "its data was not found: arxiv" in page
    assert "/data" not in page


def test_the_message_of_a_failed_training_is_shown_as_it_is(tmp_path: Path) -> None:
    plan = tiny_plan("table1")
    failed, message = plan.trainings[0], "ValueError: *x* | a_b_c\n\n# <b>no</b> `heading` [2](url) &lt; $y$ \\ end"
    with Store(tmp_path, CODE) as store:
        facts = record_facts(failed, {}) | {"error": message, "retry": False, "methods": {}}
        store.save(failed, CODE, facts, {})
        page = results_page(Results(plan, store), "oddnode paper")
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(page.split("## Trainings that failed")[1])
    assert [token.type for token in tokens if token.nesting == 0] == ["inline"]
    [inline] = (token for token in tokens if token.type == "inline")
    assert inline.children is not None
    assert {child.type for child in inline.children} <= {"text", "text_special"}
    assert "".join(child.content for child in inline.children) == f"{failed.label}: {' '.join(message.split())}"


def test_the_machine_of_a_record_is_shown_as_it_is(tmp_path: Path) -> None:
    plan = tiny_plan("table1")
    hostile = "x86_64\n\n# <script>alert(1)</script> [a](b)"
    with Store(tmp_path) as store:
        facts = record_facts(plan.trainings[0], {}) | {"error": "none", "retry": False}
        facts["made_on"] |= {"system": hostile}
        store.save(plan.trainings[0], CODE, facts, {})
        page = results_page(Results(plan, store), "oddnode paper")
    shown = MarkdownIt("commonmark").render(page)
    assert "<script>" not in shown
    assert "x86_64 # &lt;script&gt;alert(1)&lt;/script&gt; [a](b)" in shown
