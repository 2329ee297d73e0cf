"""The commands for tables, as an analyst without Python uses them."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.test_app import CLI
from tests.tables.databases import open_place
from tests.tables.examples import example, read_csv, write_csv

BOTH = ("--nodes", "nodes.csv", "--edges", "edges.csv")
FIT = ("fit", *BOTH, "--id-column", "name", "--label-column", "kind", "--out", "model")


def change(path: Path, **columns: Callable[[int], object]) -> None:
    """Add or replace columns of a table; each gets its values from a function of the row's number."""
    rows = read_csv(path)
    write_csv(path, [row | {name: value(i) for name, value in columns.items()} for i, row in enumerate(rows)])


def test_fit_prints_a_line_per_column_and_a_label_may_start_like_an_option(folder: Path, cli: CLI) -> None:
    rows = read_csv(folder / "nodes.csv")
    write_csv(folder / "nodes.csv", [row | {"kind": row["kind"] or "-1"} for row in rows])
    change(folder / "nodes.csv", size=lambda i: "" if i < 5 else i / 7)
    done = cli(*FIT, "--unlabelled", "-1", "--unlabelled", "?")
    assert done.stdout.splitlines()[:4] == [
        "column name: id, 240 different, 240 values, 0 missing",
        "column kind: label, 2 different, 160 values, 80 missing",
        "column size: number, 0.714286 to 34.1429, 235 values, 5 missing",
        "column colour: category, 3 different, 240 values, 0 missing",
    ]
    assert "labels:            a, b\n" in done.stdout
    assert (
        "note: missing numbers count as the mean of their column, and a feature marks them: size (5 of 240)"
        in done.stderr
    )


def test_errors_and_notes_name_options(folder: Path, cli: CLI) -> None:
    write_csv(folder / "nodes.csv", example(300)[0])
    change(folder / "nodes.csv", kind=lambda i: "ab?"[i % 3], code=lambda i: i % 7, day=lambda i: f"day {i} or {i}")
    refused = cli(*FIT, fails=True)
    assert refused.stderr.strip().endswith("leave it out with --drop-columns day")
    done = cli(*FIT, "--drop-columns", "day")
    assert "if it means 'not labelled': --unlabelled '?'" in done.stderr
    assert "if they are codes: --category-columns code" in done.stderr
    settled = cli(*FIT, "--drop-columns", "day", "--unlabelled", "?", "--category-columns", "code", "--overwrite")
    assert "'?'" not in settled.stderr
    assert "codes" not in settled.stderr
    assert "labels:            a, b\n" in settled.stdout
    exposed = cli(*FIT, "--overwrite", "--drop-columns", "day", "--method", "nodesafe++", fails=True)
    assert "(--exposure-nodes)" in exposed.stderr


def test_a_file_from_a_european_spreadsheet_is_read(folder: Path, cli: CLI) -> None:
    rows = read_csv(folder / "nodes.csv")
    plain = cli(*FIT, "--json")
    lines = ["name;kind;größe;colour"] + [
        ";".join([row["name"], row["kind"], row["size"].replace(".", ","), row["colour"]]) for row in rows
    ]
    (folder / "nodes.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    assert "give its --encoding" in cli(*FIT, "--overwrite", fails=True).stderr
    done = cli(*FIT, "--overwrite", "--encoding", "cp1252", "--decimal-comma", "--json")
    assert json.loads(done.stdout)["threshold"] == json.loads(plain.stdout)["threshold"]
    cli("score", "model", *BOTH, "--out", "s.csv")  # the encoding is remembered


def test_a_model_is_not_overwritten_unasked(folder: Path, cli: CLI) -> None:
    cli(*FIT)
    before = (folder / "model" / "config.json").read_bytes()
    refused = cli(*FIT, "--seed", "1", fails=True)
    assert "model has a model already; replace it with --overwrite" in refused.stderr
    refused = cli("calibrate", "model", "--false-alarm-rate", "0.2", "--out", "model", fails=True)
    assert "--overwrite" in refused.stderr
    assert (folder / "model" / "config.json").read_bytes() == before
    cli(*FIT, "--seed", "1", "--overwrite")
    assert (folder / "model" / "config.json").read_bytes() != before


def test_calibrate_then_score_with_the_same_file(folder: Path, cli: CLI) -> None:
    fitted = json.loads(cli(*FIT, "--json").stdout)
    loose = json.loads(cli("calibrate", "model", "--false-alarm-rate", "0.2", "--out", "loose", "--json").stdout)
    assert (loose["num_calibration"], loose["old_threshold"]) == (fitted["num_calibration"], fitted["threshold"])
    assert loose["threshold"] > loose["old_threshold"]
    assert "nothing to do" in cli("calibrate", "model", "--out", "x", fails=True).stderr
    assert "together" in cli("calibrate", "model", "--nodes", "nodes.csv", "--out", "x", fails=True).stderr
    change(folder / "nodes.csv", checked=lambda i: "x" if i % 2 else "")
    report = json.loads(cli("calibrate", "model", *BOTH, "--known-column", "checked", "--out", "new", "--json").stdout)
    assert report["num_calibration"] + report["num_left_out"] == 120
    assert report["num_left_out"] > 0
    scored = cli("score", "new", *BOTH, "--out", "s.csv")
    assert scored.stderr.strip() == "note: nodes.csv: columns that the model was not fitted on are ignored: checked"


def test_new_nodes_are_scored_beside_the_old_ones(folder: Path, cli: CLI) -> None:
    cli(*FIT)
    write_csv(folder / "new.csv", [{"name": "new1", "size": 1, "colour": "red"}])
    write_csv(folder / "new_edges.csv", [{"source": "new1", "target": "n001"}])
    new = ("score", "model", "--nodes", "new.csv", "--edges", "new_edges.csv", "--out", "s.csv")
    alone = cli(*new, fails=True)
    assert "1 of 1 edges name a node that the table of nodes does not have, first 'n001'" in alone.stderr
    assert "(--nodes can be several tables), or leave such edges out with --ignore-unknown-edges" in alone.stderr
    without = cli(*new, "--ignore-unknown-edges")
    assert "1 of 1 edges were left out" in without.stderr
    assert [row["name"] for row in read_csv(folder / "s.csv")] == ["new1"]
    cli("score", "model", *BOTH, "--nodes", "new.csv", "--edges", "new_edges.csv", "--out", "s.csv")
    rows = read_csv(folder / "s.csv")
    assert (len(rows), rows[-1]["name"], rows[-1]["split"]) == (241, "new1", "")


def test_queries_take_the_place_of_files_in_every_command(folder: Path, cli: CLI) -> None:
    shop, nodes = open_place("sqlite", folder), [row | {"ok": "x"} for row in example(240)[0]]
    shop.load("nodes", nodes)
    shop.load("edges", example(240)[1])
    queries = ("--db", shop.address, "--nodes", "select * from nodes", "--edges", "select * from edges")
    fit = ("fit", *queries, *FIT[5:], "--drop-columns", "ok")
    by_query, by_file = (json.loads(cli(*command, "--json").stdout) for command in (fit, (*FIT, "--overwrite")))
    columns = [column for column in by_file["columns"] if column["name"] != "ok"]
    assert by_query | {"columns": columns} == by_file
    cli("score", "model", *BOTH, "--out", "scores.csv")
    cli("score", "model", *queries, "--out", "table:scores")
    written = [float(row["score"]) for row in read_csv(folder / "scores.csv")]
    assert [score for (score,) in shop.run("select score from scores")] == pytest.approx(written, abs=1e-6)
    assert (
        "the table scores exists already" in cli("score", "model", *queries, "--out", "table:scores", fails=True).stderr
    )
    cli("score", "model", *queries, "--out", "table:scores", "--overwrite")
    cli("calibrate", "model", *queries, "--known-column", "ok", "--out", "calibrated")
    cli("prepare", *queries, "--model", "model", "--out", "graph")
    cli("score", "model", "--graph", "graph", "--out", "table:again", "--db", shop.address)
    assert shop.run("select count(*) from again") == [(240,)]


def test_scores_in_a_database_are_reported_drawn_from_and_calibrated_on_as_those_in_files(
    folder: Path, cli: CLI
) -> None:
    shop = open_place("sqlite", folder)
    for name, rows in zip(("nodes", "edges"), example(240), strict=True):
        shop.load(name, rows)
    db = ("--db", shop.address)
    tables = (*db, "--nodes", "table:nodes", "--edges", "select * from edges")
    cli(*FIT)
    cli("score", "model", *BOTH, "--out", "s.csv", "--explain")
    cli("score", "model", *tables, "--out", "table:scores", "--explain")
    pages = ("report", "model", "--json", "--out", "page.html")
    in_file, in_database = cli(*pages, *BOTH, "s.csv"), cli(*pages, *tables, "table:scores")
    assert in_file.stdout == in_database.stdout
    cli("sample-to-check", "model", "s.csv", "--n", "90", "--out", "check.csv")
    cli("sample-to-check", "model", "select * from scores", *db, "--n", "90", "--out", "table:checks")
    drawn = read_csv(folder / "check.csv")
    assert [name for (name,) in shop.run("select name from checks")] == [row["name"] for row in drawn]
    change(folder / "check.csv", known=lambda i: "no" if i % 9 == 0 else "yes")
    shop.run("update checks set known = (rowid - 1) % 9 > 0")
    checked = ("calibrate", "model", "--overwrite", "--json", "--out", "calibrated", "--checked")
    assert cli(*checked, "check.csv", *BOTH).stdout == cli(*checked, "table:checks", *tables).stdout
    again = cli("sample-to-check", "model", "table:scores", *db, "--out", "table:checks", fails=True)
    assert "the table checks exists already; give another --out" in again.stderr
    missing = cli("sample-to-check", "model", "table:scores", "--out", "c.csv", fails=True)
    assert "'table:scores' is in a database; name it with --db" in missing.stderr


def test_exposed_nodes_are_counted_and_a_class_that_only_they_have_is_named(folder: Path, cli: CLI) -> None:
    change(folder / "nodes.csv", spam=lambda i: "x" if i % 12 == 1 else "")
    done = cli(*FIT, "--exposure-column", "spam", "--json")
    report = json.loads(done.stdout)
    cli("score", "model", *BOTH, "--out", "s.csv")
    flagged = [row["is_ood"] == "true" for row in read_csv(folder / "s.csv")]
    assert report["num_exposed"] == 20
    assert report["num_exposed_flagged"] == sum(flagged[1::12])
    labelled = sum(row["kind"] != "" for row in read_csv(folder / "nodes.csv")[1::12])
    assert f"the labels of {labelled} nodes that are marked as known to be OOD are not used" in report["notes"]
    rows = read_csv(folder / "nodes.csv")
    write_csv(folder / "nodes.csv", [row | ({"kind": "c"} if row["spam"] else {}) for row in rows])
    done = cli(*FIT, "--exposure-column", "spam", "--overwrite")
    assert "labels:            a, b\n" in done.stdout
    assert "are not used; no other node has the label 'c', so the model does not know it" in done.stderr


def test_a_column_name_with_a_comma_can_be_named(folder: Path, cli: CLI) -> None:
    rows = [row | {"height, cm": i % 9, "age": i % 9 + 0.5} for i, row in enumerate(read_csv(folder / "nodes.csv"))]
    write_csv(folder / "nodes.csv", rows)
    note = cli(*FIT).stderr
    given = note.split("if they are codes: ")[1]
    assert shlex.split(given) == ["--category-columns", '"height, cm"']
    cli(*FIT, *shlex.split(given), "--overwrite")
    done = cli(*FIT, "--drop-columns", '"height, cm", age', "--json", "--overwrite")
    assert [column["name"] for column in json.loads(done.stdout)["columns"]] == ["name", "kind", "size", "colour"]


def test_control_characters_do_not_reach_the_terminal(folder: Path, cli: CLI) -> None:
    escape = "\x1b]0;title\x07\x9b2J"
    change(folder / "nodes.csv", kind=lambda i: ["a", escape][i % 2], **{f"c{escape}": lambda i: i / 7})
    for done in (
        cli(*FIT),
        cli("info", "model"),
        cli("info", "model", "--json"),
        cli(*FIT, "--overwrite", "--label-column", f"{escape}x", fails=True),
    ):
        shown = done.stdout + done.stderr
        assert "title" in shown
        assert not set("\x1b\x07\x9b") & set(shown)
    assert json.loads(cli("info", "model", "--json").stdout)["labels"] == [escape, "a"]
    cli("score", "model", *BOTH, "--out", "safe.csv")
    cli("score", "model", *BOTH, "--out", "raw.csv", "--raw-text")
    assert b"\x1b" not in (folder / "safe.csv").read_bytes()
    with (folder / "raw.csv").open(newline="", encoding="utf-8") as file:
        assert {row["predicted"] for row in csv.DictReader(file)} <= {"a", escape}


def test_later_rows_are_kept_out_of_training_and_checked(folder: Path, cli: CLI) -> None:
    change(folder / "nodes.csv", day=lambda i: f"2024-{1 + i % 12:02d}-01")
    alone = cli(*FIT, "--time-column", "day", fails=True)
    assert alone.stderr.strip() == "error: give both --time-column and --train-until, or neither"
    done = cli(*FIT, "--time-column", "day", "--train-until", "2024-09-30")
    assert "column day: time, 9 different, 180 values, 0 missing" in done.stdout
    assert "arrivals:                                   60\n" in done.stdout
    assert "arrivals with a known label, share flagged: " in done.stdout
    assert "60 of 240 rows are later than 2024-09-30 (day); they and their" in done.stderr
    assert "train until:       2024-09-30\n" in cli("info", "model").stdout
    cli("score", "model", *BOTH, "--out", "s.csv")
    late = [row["split"] == "arrival" for row in read_csv(folder / "s.csv")]
    assert late == [i % 12 >= 9 for i in range(240)]
    change(folder / "nodes.csv", day=lambda i: "soon" if i == 7 else "2024-12-01")
    lines = (folder / "nodes.csv").read_text().splitlines()
    assert lines[9 - 1].endswith("soon")
    wrong = cli("score", "model", *BOTH, "--out", "s.csv", fails=True)
    assert "nodes.csv: column 'day' has 'soon' in line 9, expected a date or time" in wrong.stderr


def test_many_columns_are_folded_into_one_line_of_a_kind(folder: Path, cli: CLI) -> None:
    words = {f"w_{j:03d}": partial(lambda j, i: (i + j) % 4 // 3 * (1 + j % 9), j) for j in range(30)}
    change(folder / "nodes.csv", price=lambda i: f"${i % 50}.{i % 10}0", article=lambda i: 4006381333931 + 17 * i)
    change(folder / "nodes.csv", **words)
    done = cli(*FIT)
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "column name: id, 240 different, 240 values, 0 missing",
        "column kind: label, 2 different, 160 values, 80 missing",
        lines[2],
        "column colour: category, 3 different, 240 values, 0 missing",
        "column article: other id, different in every row, 240 values, 0 missing",
    ]
    assert lines[2].startswith("2 columns size, price: numbers, ")
    assert lines[5] == "30 columns w_000, w_001, w_002, ...: counts, 0 to 9, 0 values missing"
    assert lines[6].startswith("method:")
    assert "look like ids or times and are left out: article" in done.stderr
    assert "numbers with the unit $: price ('$" in done.stderr
    columns = json.loads(cli(*FIT, "--overwrite", "--json").stdout)["columns"]
    assert [(column["read_as"], column["low"], column["high"]) for column in columns[-2:]] == [
        ("count", 0, 2),
        ("count", 0, 3),
    ]


def test_swapped_files_are_recognised(folder: Path, cli: CLI) -> None:
    swapped = ("--nodes", "edges.csv", "--edges", "nodes.csv")
    named = "nodes.csv has the columns of nodes ('name', 'kind'), edges.csv does not; did you swap --nodes and --edges?"
    fit = cli("fit", *swapped, *FIT[5:], fails=True)
    assert fit.stderr.strip() == f"error: {named}"
    cli(*FIT)
    scored = cli("score", "model", *swapped, "--out", "s.csv", fails=True)
    assert scored.stderr.strip().endswith("edges.csv does not; did you swap --nodes and --edges?")


def test_help_is_grouped_and_cuts_no_option(cli: CLI) -> None:
    for command in ("fit", "score", "calibrate", "prepare", "bench", "paper"):
        text = cli(command, "--help").stdout
        assert "…" not in text
        assert "<bool>" not in text
        assert "list[" not in text
    start = cli("--help").stdout
    assert start.index(" fit ") < start.index(" score ") < start.index(" bench ") < start.index(" paper ")


def test_the_loop_from_new_rows_to_a_checked_threshold(folder: Path, cli: CLI) -> None:
    fitted = json.loads(cli(*FIT, "--method", "energy", "--json").stdout)
    assert fitted["rate_interval"][0] < 0.05 < fitted["rate_interval"][1]
    assert fitted["accuracy"] > 0.9
    assert json.loads(cli("info", "model", "--json").stdout)["table_rate_interval"] == fitted["rate_interval"]
    new, edges = example(200, seed=5)
    write_csv(folder / "new.csv", [row | {"name": "m" + row["name"], "kind": ""} for row in new])
    write_csv(folder / "more.csv", [{key: "m" + value for key, value in edge.items()} for edge in edges])
    tables = (*BOTH, "--nodes", "new.csv", "--edges", "more.csv")
    both = cli("score", "model", *tables, "--out", "s.csv", "--fdr", "0.1", "--budget", "5", fails=True)
    assert "--fdr and --budget are two ways" in both.stderr
    few = cli("score", "model", *tables, "--out", "few.csv", "--only-new", "--budget", "5")
    assert "5 of 200 new rows are flagged; about" in few.stdout
    assert len(read_csv(folder / "few.csv")) == 200
    scored = json.loads(cli("score", "model", *tables, "--out", "s.csv", "--json").stdout)
    assert [group["name"] for group in scored["groups"]] == ["new", "unlabelled", "labelled"]
    assert scored["num_by_chance"] == 10
    drawn = cli("sample-to-check", "model", "s.csv", "--n", "90", "--out", "check.csv", "--json")
    assert json.loads(drawn.stdout)["num_drawn"] == 90
    change(folder / "check.csv", known=lambda i: "no" if i % 9 == 0 else "yes")
    checked = ("calibrate", "model", *tables, "--checked", "check.csv", "--out", "model2")
    assert "give one of them" in cli(*checked, "--known-column", "kind", fails=True).stderr
    done = json.loads(cli(*checked, "--json").stdout)
    assert (done["num_calibration"], done["checked"]["num_unknown"]) == (80, 10)
    assert [text.split("(")[1].split(";")[0] for text in done["summary"][:3]] == ["precision", "recall", "false alarms"]
    cli("score", "model2", *tables, "--out", "s2.csv")
