"""What the command line answers at once: in a process of its own, which must not import torch."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from oddnode import __version__
from tests.tables.examples import example, write_csv

Answer = tuple[int, str, list[str]]
Answers = dict[str, Answer]

SLOW = ("torch", "torch._dynamo", "torch_geometric", "sklearn", "scipy.stats", "pandas")
FIT = ("fit", "--nodes", "nodes.csv", "--edges", "edges.csv", "--id-column", "name", "--label-column", "kind")
PREPARE = ("prepare", *FIT[1:])
SCORE = ("score", "model", "--nodes", "nodes.csv", "--edges", "edges.csv")
QUERY = ("--out", "new", "--nodes", "select * from nowhere")

# Runs commands one after another; after each it notes which slow modules are new.
DRIVER = """
import contextlib, io, json, sys
from oddnode.cli import main

answers, seen = [], set()
for arguments in json.load(sys.stdin):
    sys.argv = ["oddnode", *arguments]
    shown, code = io.StringIO(), 0
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    new = [name for name in SLOW if name in sys.modules and name not in seen]
    seen.update(new)
    answers.append([code, shown.getvalue(), new])
json.dump(answers, sys.stdout)
"""

SCORING = [*SCORE, "--out", "scores.csv"]
COMMANDS = ("bench", "methods", "datasets", "info", "paper", "fit", "score", "calibrate", "prepare")
HELP = (["--help"], *([command, "--help"] for command in COMMANDS))
FACTS = (
    ["--version"],
    ["methods"],
    ["methods", "nodesafe"],
    ["datasets"],
    ["info", "model"],
    ["info", "model", "--json"],
)

MISTAKES: list[tuple[list[str], str]] = [
    (["bench", "--methods", "nodesave"], "Did you mean 'nodesafe'"),
    (["bench", "--task", "digit/label"], "Did you mean 'digits/label'"),
    (["bench", "--task", ","], "expected names separated by commas"),
    (["bench", "--backbone", "gcnn"], "Did you mean 'gcn'"),
    (["bench", "--protocol", "clear"], "Did you mean 'clean'"),
    (["bench", "--device", "gpu7"], "unknown device 'gpu7'"),
    (["bench", "--engine", "rey"], "Did you mean 'ray'"),
    (["bench", "--log", "mlfow"], "unknown tracker 'mlfow'. Did you mean 'mlflow'"),
    (["bench", "--set", "num_hop=2"], "Did you mean 'num_hops'"),
    (["bench", "--task", "twitch", "--data-dir", "nowhere"], "nowhere does not exist"),
    (["bench", "--task", "twitch", "--data-dir", "."], "Twitch is missing"),
    (["methods", "nodesave"], "Did you mean 'nodesafe'"),
    (["methods", "--plugin", "nowhere.py"], "nowhere.py does not exist"),
    (["info", "nowhere"], "nowhere is not a folder with a saved model: it does not exist"),
    (["info", "no-model"], "no-model is not a saved model: it has no config.json"),
    ([*FIT, "--out", "new", "--method", "nodesave"], "Did you mean 'nodesafe'"),
    ([*FIT, "--out", "new", "--device", "cdua"], "unknown device 'cdua'"),
    ([*FIT, "--out", "new", "--set", "num_hops=many"], "--set num_hops=many: expected an integer"),
    ([*FIT, "--out", "new", "--nodes", "nowhere.csv"], "nowhere.csv does not exist"),
    ([*FIT, "--out", "new", "--id-column", "nmae"], "did you mean 'name'?"),
    ([*FIT, "--out", "new", "--exposure-nodes", "nowhere.csv"], "nowhere.csv does not exist"),
    ([*FIT, "--out", "new", "--exposure-edges", "edges.csv"], "but not the nodes, --exposure-nodes"),
    ([*FIT, "--out", "model"], "replace it with --overwrite"),
    ([*SCORE, "--out", "scores.xlsx"], "neither .csv nor .parquet"),
    ([*SCORE, "--edges", "nowhere.csv", "--out", "s.csv"], "nowhere.csv does not exist"),
    (["score", "no-model", *SCORE[2:], "--out", "s.csv"], "no-model is not a saved model"),
    (["calibrate", "nowhere", "--false-alarm-rate", "0.1", "--out", "new"], "nowhere is not a folder"),
    (["calibrate", *SCORE[1:], "--known-column", "x", "--out", "new"], "no known column 'x'"),
    ([*FIT, "--out", "new", "--nodes", "select * from t"], "'select * from t' is in a database; name it with --db"),
    ([*FIT, "--out", "new", "--db", "sqlite:///shop.db"], "--db is given, but no query"),
    ([*FIT, *QUERY, "--db", "sqlite:///nowhere.db"], "nowhere.db does not exist; --db names a file"),
    ([*FIT, *QUERY, "--db", "sqlite:///shop.db"], "the query for nodes failed: no such table: nowhere"),
    ([*FIT, *QUERY, "--nodes", "taken", "--db", "sqlite:///shop.db"], "all rows of a table are table:taken"),
    ([*FIT, *QUERY, "--nodes", "drop taken", "--db", "sqlite:///shop.db"], "neither a file nor a query, which starts"),
    ([*FIT, *QUERY, "--db", "postgresql://me:hunter2@host/x"], "the address in --db contains a password"),
    ([*SCORE, "--out", "table:scores"], "--out table:scores is a table; name its database with --db"),
    ([*SCORE, "--out", "table:taken", "--db", "sqlite:///shop.db"], "the table taken exists already"),
    ([*PREPARE, "--out", "new", "--nodes", "nowhere.csv"], "nowhere.csv does not exist"),
    ([*PREPARE, "--out", "new", "--edges", "nowhere*.csv"], "no file matches 'nowhere*.csv'"),
    ([*PREPARE, "--out", "new", "--id-column", "nmae"], "did you mean 'name'?"),
    ([*PREPARE[:5], "--out", "new"], "give --id-column and --label-column, or a --model"),
    ([*PREPARE[:5], "--out", "new", "--model", "no-model"], "no-model is not a saved model"),
    (["paper", "--engine", "rey"], "Did you mean 'ray'"),
    (["paper", "--only", "tabel1"], "Did you mean 'table1'"),
    (["paper", "--protocol", "cleen"], "Did you mean 'clean'"),
    (["paper", "--device", "gpuu"], "unknown device"),
    (["paper", "--data-dir", "nowhere"], "nowhere does not exist"),
]


def run(folder: Path, commands: Sequence[Sequence[str]]) -> list[Answer]:
    """The exit status of every command, what it printed, and the slow modules that it imported."""
    code = f"SLOW = {SLOW}\n{DRIVER}"
    given = json.dumps([list(command) for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True, cwd=folder, check=True
    )
    return [(code, text, new) for code, text, new in json.loads(done.stdout)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """The answers to all commands below, where two tables, a model and a folder that is no model are."""
    folder = tmp_path_factory.mktemp("start")
    nodes, edges = example(240)
    write_csv(folder / "nodes.csv", nodes)
    write_csv(folder / "edges.csv", edges)
    (folder / "no-model").mkdir()
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.execute("create table taken (x)")
    fit = [*FIT, "--method", "nodesafe", "--set", "epochs=3", "--out", "model"]
    commands = [*HELP, *FACTS, *(command for command, _ in MISTAKES)]
    found = run(folder, [fit]) + run(folder, commands) + run(folder, [SCORING])
    return {" ".join(command): answer for command, answer in zip([fit, *commands, SCORING], found, strict=True)}


@pytest.mark.parametrize("command", [*HELP, *FACTS], ids=" ".join)
def test_help_and_facts_need_no_torch(answers: Answers, command: list[str]) -> None:
    code, text, imported = answers[" ".join(command)]
    assert (code, imported) == (0, []), text
    if command == ["--version"]:
        assert text.strip() == f"oddnode {__version__}"
    if command[-1] == "--help":
        assert "Usage" in text
    if command in HELP[1:]:
        assert f"oddnode {command[0]}" in text.partition("Examples")[2]


@pytest.mark.parametrize(("command", "message"), MISTAKES)
def test_a_mistake_is_one_line_without_torch(answers: Answers, command: list[str], message: str) -> None:
    code, text, imported = answers[" ".join(command)]
    assert message in text
    assert (code, imported, text.count("\n")) == (1, [], 1)


def test_scores_need_torch_but_not_what_takes_as_long_to_import(answers: Answers) -> None:
    code, text, imported = answers[" ".join(SCORING)]
    assert code == 0, text
    assert set(imported) - {"pandas"} == {"torch"}  # pyarrow imports pandas where it is installed
