from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from oddnode.tasks import MissingDataError, load_task, twitch_graph

REGIONS = ("DE", "ENGB", "ES", "FR", "RU")


def write_region(folder: Path, region: str, nodes: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(900 + n, 5, n % 2 == 1, 10, False, n) for n in reversed(range(nodes))]  # in any order
    rows.append(rows[3])  # and one of them twice
    with (folder / f"musae_{region}_target.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "days", "mature", "views", "partner", "new_id"), *rows])
    games = {str(n): [n % 7, 7, 7] for n in range(nodes)}
    (folder / f"musae_{region}_features.json").write_text(json.dumps(games))
    (folder / f"musae_{region}_edges.csv").write_text("from,to\n" + "".join(f"{n},{n + 1}\n" for n in range(nodes - 1)))


def test_raw_files_are_joined_on_new_id(tmp_path: Path) -> None:
    write_region(tmp_path / "twitch", "DE")
    data = twitch_graph("DE", tmp_path)
    assert data.y.tolist() == [0, 1] * 10
    assert data.x.shape == (20, 3170)
    assert data.x[0].nonzero().squeeze(1).tolist() == [0, 7]
    assert data.x[0].max() == 0.5
    assert data.x[7].nonzero().squeeze(1).tolist() == [0, 7]
    assert data.edge_index.shape == (2, 38)


def test_task_splits_one_to_one_to_eight_and_the_published_one_has_self_loops(tmp_path: Path) -> None:
    for region in REGIONS:
        write_region(tmp_path / "twitch", region)
    task = load_task("twitch", tmp_path)
    assert [int(task.train[m].sum()) for m in ("train_mask", "val_mask", "test_mask")] == [2, 2, 16]
    assert list(task.tests) == ["es", "fr", "ru"]
    published = load_task("twitch", tmp_path, protocol="published")
    loops = published.train.edge_index[0] == published.train.edge_index[1]
    assert int(loops.sum()) == 20
    assert not torch.equal(load_task("twitch", tmp_path, seed=1).train.train_mask, task.train.train_mask)


def test_missing_files_are_named(tmp_path: Path) -> None:
    write_region(tmp_path / "twitch", "DE")
    (tmp_path / "twitch/musae_DE_target.csv").unlink()
    with pytest.raises(
        MissingDataError, match=r"missing musae_DE_target.csv; looked in .*Get the raw files from https"
    ):
        load_task("twitch", tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("musae_DE_edges.csv", "from,to\n0,99\n"),
        ("musae_DE_edges.csv", "from,to\n0,x\n"),
        ("musae_DE_features.json", "{broken"),
        ("musae_DE_features.json", '{"0": [4000]}'),
        ("musae_DE_target.csv", "id,mature\n1,True\n"),
        ("musae_DE_target.csv", "new_id,mature\n5,True\n"),
    ],
)
def test_damaged_files_are_an_error_that_names_them(tmp_path: Path, file: str, content: str) -> None:
    write_region(tmp_path / "twitch", "DE")
    (tmp_path / "twitch" / file).write_text(content)
    with pytest.raises(MissingDataError, match=r"the DE files in .* are damaged"):
        twitch_graph("DE", tmp_path)


def test_real_graphs_have_the_known_sizes(real_data: Path) -> None:
    for region, nodes, pairs in (("DE", 9498, 153138), ("ES", 4648, 59382)):
        data = twitch_graph(region, real_data)
        assert data.num_nodes == nodes
        assert data.edge_index.shape[1] == 2 * pairs
