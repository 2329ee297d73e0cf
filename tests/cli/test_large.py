"""The commands for graphs on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_app import CLI
from tests.tables.examples import read_csv, write_csv

PREPARE = ("prepare", "--nodes", "nodes.csv", "--edges", "edges*.csv")


@pytest.fixture(autouse=True)
def two_files(folder: Path) -> None:
    """The edges are in two files."""
    edges = read_csv(folder / "edges.csv")
    write_csv(folder / "edges1.csv", edges[::2])
    write_csv(folder / "edges2.csv", edges[1::2])
    (folder / "edges.csv").unlink()


def test_prepare_fit_score_and_calibrate(folder: Path, cli: CLI) -> None:
    prepared = cli(*PREPARE, "--id-column", "name", "--label-column", "kind", "--out", "graph", "--json")
    facts = json.loads(prepared.stdout)
    assert (facts["num_nodes"], facts["num_features"], facts["labels"]) == (240, 4, ["a", "b"])
    assert [(each["name"], each["read_as"]) for each in facts["columns"]][:2] == [("name", "id"), ("kind", "label")]
    again = cli(*PREPARE, "--id-column", "name", "--label-column", "kind", "--out", "graph2")
    assert "column kind: label, 2 different, " in again.stdout
    assert {"ax.bin", "ax-moments.bin"} <= {path.name for path in (folder / "graph").iterdir()}
    fitted = cli("fit", "--graph", "graph", "--method", "gnnsafe", "--out", "model", "--json")
    assert json.loads(fitted.stdout)["num_nodes"] == 240
    cli("score", "model", "--graph", "graph", "--out", "scores.csv", "--explain")
    rows = read_csv(folder / "scores.csv")
    assert [row["name"] for row in rows] == [row["name"] for row in read_csv(folder / "nodes.csv")]
    assert {row["is_ood"] for row in rows} <= {"true", "false"}
    stricter = cli("calibrate", "model", "--graph", "graph", "--false-alarm-rate", "0.2", "--out", "other", "--json")
    assert json.loads(stricter.stdout)["false_alarm_rate"] == 0.2
    cli(*PREPARE, "--model", "model", "--out", "later")
    cli("score", "other", "--graph", "later", "--out", "later.parquet")


def test_weights_of_edges_are_read_and_named(folder: Path, cli: CLI) -> None:
    for number in (1, 2):
        rows = read_csv(folder / f"edges{number}.csv")
        write_csv(folder / f"edges{number}.csv", [row | {"amount": 0.5 + i % 3} for i, row in enumerate(rows)])
    columns = "--id-column", "name", "--label-column", "kind"
    cli(*PREPARE, *columns, "--weight-column", "amount", "--out", "graph")
    assert (folder / "graph" / "weights.bin").stat().st_size > 0
    cli("fit", "--graph", "graph", "--method", "energy", "--set", "epochs=2", "--out", "model")
    assert json.loads(cli("info", "model", "--json").stdout)["weight_column"] == "amount"
    cli(*PREPARE, *columns, "--unweighted", "--out", "plain")
    refused = cli("score", "model", "--graph", "plain", "--out", "scores.csv", fails=True)
    assert "prepared with no weights of edges, but the model was fitted with the column 'amount'" in " ".join(
        refused.stderr.split()
    )


COLUMNS = "--id-column name --label-column kind"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("prepare --out graph", "give --id-column and --label-column, or a --model"),
        ("fit --out model", "give --nodes, --edges, --id-column, or a --graph"),
        ("fit --graph none --out model", "none is not a folder"),
        ("fit --graph g --directed --nodes n.csv --out m", "--nodes, --directed cannot be combined with --graph; they"),
        ("prepare --model m --weight-column w --out g", "--weight-column cannot be combined with --model, which says"),
        (f"prepare {COLUMNS} --weight-column amout --out g", "has no weight column 'amout'"),
        (
            f"prepare {COLUMNS} --weight-column w --unweighted --out g",
            "either --weight-column or --unweighted, not both",
        ),
        ("fit --graph g --backbone gta --out m", "unknown backbone 'gta'. Did you mean 'gat'?"),
        ("fit --graph g --method gpn --backbone gat --out m", "--backbone gat: gpn has its own network (gpn)"),
        ("score model --out scores.csv", "give --nodes, --edges, or a --graph"),
        ("score m --graph g --edges e.csv --out s.csv", "--edges cannot be combined with --graph"),
    ],
)
def test_options_that_do_not_go_together(folder: Path, cli: CLI, command: str, message: str) -> None:
    refused = cli(*command.replace("prepare", " ".join(PREPARE)).split(), fails=True)
    assert message in " ".join(refused.stderr.split())


def test_settings_networks_and_methods_that_cannot_be_used_on_disk(folder: Path, cli: CLI) -> None:
    cli(*PREPARE, "--id-column", "name", "--label-column", "kind", "--out", "graph")
    refused = cli("fit", "--graph", "graph", "--method", "odin", "--out", "model", fails=True)
    assert "cannot be used on a graph on disk: ODIN needs the edges or the features" in refused.stderr
    assert not (folder / "model").exists()
    cli("fit", "--graph", "graph", "--set", "num_hops=3", "--set", "epochs=2", "--out", "model")
    shown = json.loads(cli("info", "model", "--json").stdout)
    assert shown["method"] == "nodesafe-evidence"
    assert shown["settings"]["epochs"] == 2
    fitted = cli("fit", "--graph", "graph", "--backbone", "gat", "--set", "epochs=5", "--out", "other")
    assert "trained in mini-batches of sampled neighbourhoods: the network is gat" in " ".join(fitted.stderr.split())
    assert json.loads(cli("info", "other", "--json").stdout)["backbone"] == "gat"
    cli("score", "other", "--graph", "graph", "--out", "scores.csv")
    assert len(read_csv(folder / "scores.csv")) == 240
