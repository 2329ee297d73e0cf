from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from oddnode.bench import benchmark, expand_methods
from oddnode.bench.tables import compare_table, markdown_table
from oddnode.cli.app import app
from oddnode.detector import MODEL_FREE, RECIPES, Detector, Recipe, fitting, setting_types
from oddnode.detector.recipes import Settings
from oddnode.evaluation import Result
from oddnode.protocols import published
from oddnode.tasks import load_task
from oddnode.training import BatchNormStatistics

ON_CROSS_ENTROPY = [
    "msp",
    "odin",
    "mahalanobis",
    "energy",
    "gnnsafe",
    "msp-prop",
    "knn",
    "grasp",
    "gebm",
    "nonzeros",
    "degree",
    "neighbour-cosine",
    "centred-cosine",
]


@pytest.fixture
def three_epochs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Trainings of three epochs; gives the objectives of those that were run."""
    run: list[str] = []
    prepare = fitting.new_networks

    def short(detector: Detector, *args: Any) -> Any:
        detector.epochs = 3
        run.append(repr(detector.objective))
        return prepare(detector, *args)

    monkeypatch.setattr(fitting, "new_networks", short)
    return run


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_a_recipe_states_what_its_parts_say(recipe: Recipe) -> None:
    objective, scorer = recipe.build()
    assert (objective.needs_exposure or scorer.needs_exposure) == recipe.needs_exposure
    assert recipe.reference
    assert recipe.cost
    if scorer.num_hops_used:
        assert recipe.transductive


def test_methods_on_plain_cross_entropy_share_one_training() -> None:
    keys = {name: Detector.from_recipe(name).training_key() for name in RECIPES}
    shared = {name for name, key in keys.items() if key == keys["msp"]}
    assert shared == set(ON_CROSS_ENTROPY)
    assert {name for name, recipe in RECIPES.items() if "shared with msp" in recipe.cost} | {
        "msp",
        *MODEL_FREE,
    } == shared


def test_the_floor_is_the_methods_without_a_model() -> None:
    assert set(MODEL_FREE) == {name for name, recipe in RECIPES.items() if recipe.cost == "no model"}
    data = load_task("digits/label").train
    for name, same in (*((name, True) for name in MODEL_FREE), ("msp", False)):
        a, b = (
            Detector.from_recipe(name, epochs=1, seed=s, device="cpu").fit(data).score_samples(data) for s in (0, 1)
        )
        assert torch.equal(a, b) == same, name


def test_benchmark_with_floor_trains_no_more(three_epochs: list[str]) -> None:
    results = benchmark("digits/label", "nodesafe", seeds=1, device="cpu", model_free=True)
    assert [r.method for r in results] == ["nodesafe", *MODEL_FREE]
    assert len(three_epochs) == 1
    assert [r.method for r in benchmark("digits/label", "degree", seeds=1, device="cpu", model_free=True)] == [
        "degree",
        "nonzeros",
        "neighbour-cosine",
        "centred-cosine",
    ]


def test_json_holds_exactly_the_methods_asked_for_and_tables_the_floor_too(
    three_epochs: list[str], tmp_path: Path
) -> None:
    command = ["bench", "--methods", "degree,msp", "--seeds", "1", "--device", "cpu"]
    listed = json.loads(CliRunner().invoke(app, [*command, "--json", "--out", str(tmp_path)]).stdout)
    assert [row["method"] for row in listed] == ["degree", "msp"]
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in report.splitlines() if line.startswith(("| digits", "| *digits"))]
    assert [row[2].strip() for row in rows] == [
        "msp",
        "*degree*",
        "*nonzeros*",
        "*neighbour-cosine*",
        "*centred-cosine*",
    ]
    stored = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [row for row in stored if row["method"] in ("degree", "msp")] == listed
    assert [row["method"] for row in stored if row not in listed] == ["nonzeros", "neighbour-cosine", "centred-cosine"]
    printed = CliRunner().invoke(app, command).stdout
    assert printed.index("msp") < printed.index("degree") < printed.index("neighbour-cosine")
    assert "model-free scores last" in printed


def test_tables_of_several_tasks_end_with_the_model_free_scores() -> None:
    results = []
    for task in ("one", "two"):
        for method in (*MODEL_FREE, "msp"):
            run = {"auroc": 50.0, "aupr": 50.0, "fpr95": 95.0, "id_acc": 80.0}
            results.append(Result(task, method, "clean", "gcn", [run]))
    rows = [line.split("|")[1].strip() for line in compare_table(results).splitlines() if line.startswith("|")]
    assert rows[2:] == ["msp", *(f"*{name}*" for name in MODEL_FREE)]
    cells = [line.split("|") for line in markdown_table(results).splitlines() if line.startswith("|")][2:]
    assert [c[2].strip() for c in cells] == ["msp", *(f"*{name}*" for name in MODEL_FREE)] * 2
    assert [c[6].strip() for c in cells[:2]] == ["80.0", "*-*"]  # a model-free score classifies nothing


@pytest.mark.parametrize("name", published.METHODS)
def test_the_benchmark_of_a_published_method_is_that_of_its_detector(name: str, three_epochs: list[str]) -> None:
    [result] = benchmark("digits/label", name, seeds=1, protocol="published", device="cpu")
    task = load_task("digits/label", protocol="published")
    detector = published.detector(name, task, device="cpu")
    assert detector.objective is not None
    detector.fit(task.train, task.exposure if detector.needs_exposure else None)
    [test] = task.tests.values()
    known = detector.score_samples(task.id_test.data)[task.id_test.mask]
    unknown = detector.score_samples(test)[test.ood_mask]
    is_known = [True] * len(known) + [False] * len(unknown)
    assert result.protocol == "published"
    assert result.mean("auroc") == pytest.approx(100 * roc_auc_score(is_known, torch.cat([known, unknown])), abs=1e-6)


def test_all_methods_are_those_that_the_protocol_has_settings_for() -> None:
    assert expand_methods(["all"]) == list(RECIPES)
    assert expand_methods(["all"], "published") == [name for name in RECIPES if name in published.METHODS]


def test_published_settings_of_single_methods() -> None:
    task = load_task("digits/label", protocol="published")
    mahalanobis = published.detector("mahalanobis", task)
    assert (mahalanobis.lr, mahalanobis.weight_decay) == (0.001, 0.0)
    assert repr(published.detector("oe", task).objective) == "CrossEntropy() + 0.5 * OutlierExposure()"
    assert repr(published.detector("oe", task).scorer) == "MaxLogit()"
    assert published.detector("msp", task).lr == 0.01


@pytest.mark.parametrize("name", ["odin", "mahalanobis"])
def test_scores_as_coded_are_the_negated_ones(name: str, three_epochs: list[str]) -> None:
    task = load_task("digits/label", protocol="published")
    right, coded = (published.detector(name, task, device="cpu", as_coded=a).fit(task.train) for a in (False, True))
    torch.testing.assert_close(coded.score_samples(task.train), -right.score_samples(task.train))


@pytest.mark.parametrize("name", ["knn", "grasp", "gold", "msp-prop"])
def test_later_methods_have_no_published_settings(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}' has no published settings"):
        published.detector(name, load_task("digits/label", protocol="published"))


def test_choices_are_those_of_training() -> None:
    assert get_args(get_type_hints(Settings)["batch_norm"]) == get_args(BatchNormStatistics)


@pytest.mark.parametrize("name", RECIPES)
def test_a_default_has_the_type_that_is_stated(name: str) -> None:
    types = setting_types(RECIPES[name])
    for setting, default in RECIPES[name].hyper_parameters.items():
        kinds = get_args(types[setting]) or (types[setting],)
        assert default in kinds or type(default) in kinds, setting


def test_without_annotations_the_default_tells_the_type() -> None:
    recipe = Recipe("own", lambda scale=2.0, steps=3: None, "here")  # type: ignore[arg-type, return-value]
    assert recipe.hyper_parameter_types == {"scale": float, "steps": int}


def test_annotations_that_only_a_type_checker_knows_are_passed_over() -> None:
    def build(scale: Unknown = 2.0) -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    assert Recipe("own", build, "here").hyper_parameter_types == {"scale": float}  # type: ignore[arg-type]
