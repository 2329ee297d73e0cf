"""The lines of the gallery run, show what the page says, and make its pictures."""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tests.docs.test_docs import DOCS, script

pytestmark = pytest.mark.slow

MAX_BYTES = 100_000


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    pytest.importorskip("matplotlib", reason="GALLERY NOT TESTED: install matplotlib")
    return script("draw_gallery")


@pytest.fixture(scope="module")
def made(gallery: ModuleType) -> dict[str, Any]:
    pytest.importorskip("pyarrow", reason="GALLERY NOT TESTED: install pyarrow")
    return gallery.run_page()


def test_unknown_arrivals_are_found_and_the_evidence_speaks_against_them(made: dict[str, Any]) -> None:
    flagged, known, unknown = made["flagged"], made["known"], made["unknown"]
    assert flagged[unknown].float().mean() > 0.8
    assert flagged[known].float().mean() < 0.15
    assert torch.equal(flagged[known], made["scores"][known] <= made["threshold"])
    assert bool(unknown[made["node"]])
    assert max(made["evidence"].values()) > math.log(10)
    assert made["why"].endswith(".")


def test_methods_differ_on_the_same_arrivals_and_paler_ones_are_flagged_more_often(made: dict[str, Any]) -> None:
    counted = made["known"] | made["unknown"]
    area = {
        name: roc_auc_score(made["known"][counted].numpy(), scores[counted].numpy())
        for name, scores in made["by_method"].items()
    }
    assert len(area) == 4
    assert min(area.values()) > 0.7
    assert max(area, key=area.__getitem__) == "nodesafe-evidence"
    shares = list(made["alarms"].values())
    assert shares == sorted(shares)
    assert shares[-1] > 0.3


def test_the_rate_holds_on_average(made: dict[str, Any]) -> None:
    assert len(made["draws"]) == 30
    for rate in (0.05, 0.1, 0.2):
        observed = [(draw <= rate).double().mean().item() for draw in made["draws"]]
        assert np.mean(observed) == pytest.approx(rate, abs=0.02)


def test_the_table_flags_digits_that_nobody_labelled(made: dict[str, Any]) -> None:
    unknown = made["digits"].y.numpy() >= 6
    labelled = np.array([digit is not None for digit in made["nodes"]["digit"]])
    flagged = np.array(made["table"]["is_ood"].to_pylist())
    assert flagged[~unknown & ~labelled].mean() < 0.1
    assert flagged[unknown].mean() > 0.3


def test_the_pictures_are_drawn(gallery: ModuleType, made: dict[str, Any], tmp_path: Path) -> None:
    from PIL import Image

    gallery.draw(made, tmp_path)
    for name in gallery.PICTURES:
        with Image.open(tmp_path / name) as drawn, Image.open(DOCS / "images" / name) as shown:
            assert drawn.size == shown.size
            assert drawn.convert("L").getextrema() == (0, 255)  # something black on white
        assert (tmp_path / name).stat().st_size < MAX_BYTES
