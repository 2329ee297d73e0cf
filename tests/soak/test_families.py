"""The families: what they make is what they say, and their oracles find what is wrong."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from random import Random

import pytest
from safetensors.torch import load_file, save_file
from scipy.stats import binom

from soak.bases import fitted, small_tables
from soak.model_mutations import MUTATIONS, parses
from soak.statistics import wrong_count
from soak.table_mutations import FORMS, write
from soak.tables import _wrong_row


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in ("nodesafe", "mahalanobis"):
        fitted(name, epochs=1).save(folder / name)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", MUTATIONS)
def test_mutations_change_a_model_and_follow_from_the_seed(models: Path, tmp_path: Path, kind: str) -> None:
    found: list[dict[str, bytes]] = []
    for seed in (1, 1, 2, 3):
        folder = tmp_path / f"{len(found)}" / "nodesafe"
        shutil.copytree(models / "nodesafe", folder)
        MUTATIONS[kind](folder, Random(seed), models)
        found.append(content(folder))
    assert found[0] == found[1]
    assert any(each != content(models / "nodesafe") for each in found)


def test_what_is_signed_gets_past_the_parsers_and_what_is_not_does_not(models: Path, tmp_path: Path) -> None:
    past = {}
    for kind in ("flipped bit", "number, signed", "tensor values, signed"):
        past[kind] = 0
        for seed in range(10):
            folder = tmp_path / f"{kind} {seed}" / "nodesafe"
            shutil.copytree(models / "nodesafe", folder)
            MUTATIONS[kind](folder, Random(seed), models)
            past[kind] += parses(folder)
    assert past["flipped bit"] <= 2  # a bit of the manifest that no parser minds
    assert past["number, signed"] == past["tensor values, signed"] == 10


def test_the_oracle_of_models_sees_another_score_and_a_file_that_should_not_load(models: Path, tmp_path: Path) -> None:
    from oddnode import Detector
    from soak.bases import small_graph
    from soak.model_mutations import sign
    from soak.models import Models

    family = Models()
    family.graph = small_graph(1)
    family.scores = {"nodesafe": Detector.load(models / "nodesafe").score_samples(family.graph)}
    folder = tmp_path / "nodesafe"
    shutil.copytree(models / "nodesafe", folder)
    assert family._judge("same in other bytes", folder) == (None, True)
    assert family._judge("flipped bit", folder) == ("a changed file was loaded", True)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: t * 1.5 if t.is_floating_point() and name.endswith("weight") else t for name, t in tensors.items()},
        folder / "model.safetensors",
    )
    sign(folder)
    assert family._judge("same in other bytes", folder) == ("the same model scores otherwise", True)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form.values())))
def test_forms_hold_the_columns(tmp_path: Path, form: dict) -> None:
    from oddnode.tables import open_table

    nodes, _ = small_tables(Random(0))
    path = write(nodes, tmp_path / "nodes", form)
    assert list(open_table(path, "nodes").columns) == list(nodes)
    if path.suffix == ".csv" and "mark" not in form:
        with path.open(newline="") as file:
            rows = list(csv.reader(file, delimiter=form.get("delimiter", ",")))
        assert [row[0] for row in rows[1:]] == nodes["id"]


def test_the_oracle_of_tables_sees_wrong_rows() -> None:
    row = {"id": "a", "score": "1.0", "p_value": "0.04", "is_ood": "true"}
    assert _wrong_row([row], 0.05) is None
    assert "is_ood" in (_wrong_row([row | {"is_ood": "false"}], 0.05) or "")
    assert "score" in (_wrong_row([row | {"score": "nan"}], 0.05) or "")
    assert "p-value" in (_wrong_row([row | {"p_value": "0"}], 0.05) or "")


def test_limits_of_false_alarms_are_binomial() -> None:
    # 99 nodes at 5 %: 5 of 100 ranks are flagged.
    highest = int(binom.isf(1e-9, 2000, 0.05))
    assert wrong_count(highest, 2000, 0.05, 99, ties=False) is None
    assert wrong_count(highest + 1, 2000, 0.05, 99, ties=False) is not None
    assert wrong_count(10, 2000, 0.05, 99, ties=False) is not None
    assert wrong_count(10, 2000, 0.05, 99, ties=True) is None
