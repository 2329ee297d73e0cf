"""``oddnode info`` on models that were saved by ``fit`` and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from oddnode import CrossEntropy, Detector, Energy
from tests.cli.test_app import CLI
from tests.tables.examples import read_csv, write_csv

FIT = ("fit", "--nodes", "nodes.csv", "--edges", "edges.csv", "--id-column", "name", "--label-column", "kind")


@pytest.mark.parametrize("direction", [(), ("--directed",)])
def test_it_names_the_method_and_counts_edges_as_fit_did(folder: Path, cli: CLI, direction: tuple[str, ...]) -> None:
    given = ("--method", "nodesafe", "--set", "num_hops=2", "--set", "epochs=4", "--out", "model", "--json")
    fitted = json.loads(cli(*FIT, *given, *direction).stdout)
    shown = cli("info", "model").stdout
    assert "method:            nodesafe, with num_hops=2\n" in shown
    assert f"240 nodes, {fitted['num_edges']} edges" in shown
    assert "of 4 was best, seed 0\n" in shown
    assert f"scores below {fitted['threshold']:.6g} are flagged" in shown
    assert "{" not in shown
    facts = json.loads(cli("info", "model", "--json").stdout)
    assert (facts["method"], facts["hyper_parameters"]) == ("nodesafe", {"num_hops": 2})
    assert facts["num_edges"] == fitted["num_edges"]
    assert facts["num_weights"] == sum(p.numel() for p in Detector.load("model").module_.parameters())


def test_it_says_how_columns_are_read(folder: Path, cli: CLI) -> None:
    rows = read_csv(folder / "nodes.csv")
    write_csv(folder / "nodes.csv", [row | {"size": "" if i < 9 else row["size"]} for i, row in enumerate(rows)])
    cli(*FIT, "--set", "epochs=2", "--out", "model")
    shown = cli("info", "model").stdout
    sizes = [float(row["size"]) for row in read_csv(folder / "nodes.csv") if row["size"]]
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    assert cells[0] == ["name", "id", ""]
    assert cells[1][:2] == ["size", "number"]
    assert cells[1][2].startswith(f"mean {sum(sizes) / len(sizes):.4g}, standard deviation")
    assert cells[1][2].endswith("and whether it is missing")
    assert cells[2] == ["colour", "category", "3: blue, green, red"]
    columns = json.loads(cli("info", "model", "--json").stdout)["columns"]
    assert columns == [{"name": "size", "read_as": "number"}, {"name": "colour", "read_as": "category"}]


def test_it_has_the_forecast_that_fit_printed(folder: Path, cli: CLI) -> None:
    fitted = json.loads(cli(*FIT, "--set", "epochs=2", "--out", "model", "--json").stdout)
    assert len(fitted["forecast"]) > 3
    assert json.loads(cli("info", "model", "--json").stdout)["forecast"] == fitted["forecast"]
    name, share = next(iter(fitted["forecast"].items()))
    shown = " ".join(cli("info", "model").stdout.split())
    assert f"of altered known nodes, caught at 5 % false alarms: {name} {100 * share:.0f} %" in shown
    cli(*FIT, "--method", "nodesafe", "--set", "epochs=2", "--out", "other")
    assert "forecast" not in cli("info", "other").stdout
    assert json.loads(cli("info", "other", "--json").stdout)["forecast"] == {}


def test_one_label_predicts_nothing(folder: Path, cli: CLI) -> None:
    rows = read_csv(folder / "nodes.csv")
    write_csv(folder / "nodes.csv", [row | {"kind": row["kind"] and "a"} for row in rows])
    fitted = cli(*FIT, "--set", "epochs=2", "--out", "model")
    assert "there is one label, 'a', so the predicted label says nothing" in fitted.stderr
    assert "labels:            a; predicted is always this label\n" in cli("info", "model").stdout


def test_a_model_from_python_shows_its_parts_and_damage_is_refused(two_groups: Data, tmp_path: Path, cli: CLI) -> None:
    Detector("gcn", CrossEntropy(), Energy(), epochs=2, device="cpu").fit(two_groups).save(tmp_path / "own")
    shown = cli("info", str(tmp_path / "own")).stdout
    assert "method:" not in shown
    assert "scorer:            Energy(centred=False)\n" in shown
    source, target = two_groups.edge_index
    assert f"60 nodes, {int((source != target).sum())} edges" in shown
    assert "decisions:         not calibrated\n" in shown
    assert " of 2 was best, seed 0\n" in shown
    wrapped = Detector.wrap(GCN(two_groups.num_features, 8, 2, 3), scorer="msp", data=two_groups)
    wrapped.save(tmp_path / "wrapped")
    assert "was best" not in cli("info", str(tmp_path / "wrapped")).stdout
    Detector.from_recipe("msp", epochs=2, device="cpu").fit(two_groups).save(tmp_path / "msp")
    assert "method:            msp\n" in cli("info", str(tmp_path / "msp")).stdout
    weights = tmp_path / "msp" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert "model.safetensors is damaged or was changed" in cli("info", str(tmp_path / "msp"), fails=True).stderr
