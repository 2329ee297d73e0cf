"""The command, up to the moment at which it listens, and as a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oddnode.service.state import Source
from tests.service.processes import Served


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give --graph, or --nodes and --edges"),
        (["--nodes", "n.csv"], "give --graph, or --nodes and --edges"),
        (["--graph", "g", "--state", "a", "--follow", "b"], "give one of them"),
        (["--graph", "g", "--host", "0.0.0.0"], "set ODDNODE_TOKEN"),
    ],
)
def test_options_that_do_not_fit_are_refused(cli: Callable[..., Any], source: Source, options: Any, said: str) -> None:
    assert said in cli("serve", str(source.model), *options, fails=True).stderr


def test_an_address_that_others_reach_needs_a_token(
    cli: Callable[..., Any], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("serve", str(source.model), "--graph", "g", "--host", "0.0.0.0")
    assert "set ODDNODE_TOKEN" in cli(*given, fails=True).stderr
    monkeypatch.setenv("ODDNODE_TOKEN", "short")
    assert "expected 16 or more" in cli(*given, fails=True).stderr


def test_a_follower_needs_a_log_and_a_graph_that_is_there(
    cli: Callable[..., Any], source: Source, tmp_path: Path
) -> None:
    tables = ("--nodes", str(source.nodes[0]), "--edges", str(source.edges[0]))
    assert (
        "has no log of changes"
        in cli("serve", str(source.model), *tables, "--follow", str(tmp_path), fails=True).stderr
    )
    missing = cli("serve", str(source.model), "--nodes", "no.csv", "--edges", "no.csv", fails=True)
    assert "no.csv" in missing.stderr


def test_a_graph_that_cannot_be_loaded_ends_the_process_and_says_why(source: Source, tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\np0001,nobody\n")
    served = Served(tmp_path, source.model, "--nodes", source.nodes[0], "--edges", edges, "--state", tmp_path / "s")
    served.process.join(60)
    assert served.process.exitcode == 1
    assert "nobody" in served.text
