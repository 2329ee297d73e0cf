"""Models and graph folders of earlier versions: they give the scores of then, or say how to make them anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oddnode
from oddnode import Detector, ModelFileError
from oddnode.large import FolderError, GraphFolder
from oddnode.tables import TableModel
from tests.kept_files import KEPT, known_graph, known_tables


def read(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call returns, or the message of its error."""
    try:
        return call(), ""
    except (ModelFileError, FolderError) as error:
        return None, str(error)


@pytest.mark.parametrize("kept", sorted(KEPT.iterdir()), ids=lambda path: path.name)
def test_files_of_a_version_give_its_scores_or_say_how_to_make_them_anew(kept: Path, tmp_path: Path) -> None:
    expected = json.loads((kept / "scores.json").read_text())
    shutil.copytree(kept / "graph", tmp_path / "graph")  # sidecars are written beside it
    detector, refused = read(lambda: Detector.load(kept / "model"))
    if detector is None:
        assert kept.name != oddnode.__version__
        assert "fit the model again with this version and save it" in refused
        return
    assert detector.score_samples(known_graph()).tolist() == pytest.approx(expected["model"], abs=1e-4)
    tables = TableModel.load(kept / "tables").score_frame(*known_tables())
    assert tables["score"].to_pylist() == pytest.approx(expected["tables"], abs=1e-4)
    assert tables["id"].to_pylist() == known_tables()[0]["id"]
    default, refused = read(lambda: TableModel.load(kept / "default"))
    if default is None:
        assert kept.name != oddnode.__version__
        assert "fit the model again with this version and save it" in refused
    else:
        rows = default.score_frame(*known_tables(120), explain=True).to_pydict()
        assert rows["id"] == known_tables(120)[0]["id"]
        assert [p <= 0.05 for p in rows["p_value"]] == rows["is_ood"]
        assert any(rows["is_ood"])
    folder, refused = read(lambda: GraphFolder(tmp_path / "graph"))
    if folder is None:
        assert kept.name != oddnode.__version__
        assert "delete the folder and prepare the graph again" in refused
        return
    assert folder.ids().tolist() == [f"n{node}" for node in range(12)]
    assert folder.manifest.classes == ["even", "odd"]
    assert detector.score_samples(folder).tolist() == pytest.approx(expected["graph"], abs=1e-4)
