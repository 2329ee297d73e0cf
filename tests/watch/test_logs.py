"""The log of a service as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from oddnode.tables import TableError
from oddnode.watch import LogRows, Watch

log = pytest.importorskip("oddnode.service.log")
pytest.importorskip("fastapi")
from tests.service.conftest import client as client  # noqa: E402
from tests.service.conftest import goods as goods  # noqa: E402
from tests.service.conftest import row as row  # noqa: E402
from tests.service.conftest import source as source  # noqa: E402
from tests.service.conftest import started as started  # noqa: E402
from tests.service.conftest import state as state  # noqa: E402


def judgement(name: str, score: float, **more: Any) -> dict[str, Any]:
    own = {"id": name, "score": score, "p_value": 0.5, "is_ood": False, "predicted": "a", "confidence": 0.9}
    evidence = [{"kind": "links", "surprise": 1.0, "contribution": 0.1}]
    evidence += [{"kind": "batch", "surprise": 0.0, "contribution": 0.0}]  # a service judges every arrival alone
    own |= {"evidence": evidence, "reason": None, "exact": True, "num_neighbours": 2, "is_far": False, "unseen": {}}
    return own | {"version": 1, "why": None} | more


def written(folder: Path, changes: list[tuple[float, dict[str, Any], list[dict[str, Any]]]]) -> Path:
    """A log as the service writes it."""
    changelog = log.ChangeLog(folder, {"model": "abc123def456" * 5})
    changelog.begin()
    for version, (time, body, answers) in enumerate(changes, 1):
        parts = (msgspec.json.encode(each) for each in (body, {"answers": answers, "version": version}))
        changelog.append(log.LoggedChange(version, time, None, b"", "json", *parts, len(answers), 0))
    changelog.commit()
    changelog.close()
    return folder


def test_added_nodes_are_read_with_their_links_to_each_other(tmp_path: Path) -> None:
    first = {"add_nodes": [{"id": "n1"}, {"id": "n2"}], "add_edges": [["n1", "n2"], ["n2", "n1"], ["n1", "old"]]}
    second = {
        "add_nodes": [{"id": "n3"}],
        "add_edges": [["n3", "n1", 2.0], ["n3", "old"]],
        "change_nodes": [{"id": "n1"}],
    }
    folder = written(
        tmp_path / "state",
        [
            (10.0, first, [judgement("n1", 1.0), judgement("n2", 2.0, why="It is odd.")]),
            (95.0, second, [judgement("n3", 3.0, reason="links"), judgement("n1", 9.0)]),
            (99.0, {"add_nodes": [{"id": "card"}]}, [judgement("card", 0.0, p_value=None)]),
        ],
    )
    source = LogRows(folder, "abc123def456")
    assert source.times().tolist() == [10, 10, 95]
    rows, known = source.read(0, 60)
    assert (rows.ids, rows.scores.tolist(), rows.links_among, known) == (["n1", "n2"], [1, 2], 1, None)
    assert rows.why == [None, "It is odd."]
    assert rows.evidence["links"].tolist() == pytest.approx([np.exp(-1)] * 2)
    assert list(rows.evidence) == ["links"]
    rows, _ = source.read(60, 120)
    assert (rows.ids, rows.links_among, rows.why) == (["n3"], 1, ["Strongest evidence: links."])


def test_a_log_is_watched_like_tables(tmp_path: Path, watch: Callable[..., Watch], known: np.ndarray) -> None:
    low = [judgement(f"n{k}", float(known.min()) - 1 - k) for k in range(60)]
    changes = [(30.0 * k, {"add_nodes": [{"id": each["id"]}]}, [each]) for k, each in enumerate(low)]
    folder = written(tmp_path / "state", changes)
    report = watch(window="10m", model_id="abc123def456").run(LogRows(folder, "abc123def456"), until=1700.0)
    assert [each.drift.num_nodes for each in report.windows] == [20, 20]
    assert report.alarm is not None


def test_other_folders_and_logs_of_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"has no changes\.sqlite"):
        LogRows(tmp_path, "abc")
    folder = written(tmp_path / "state", [])
    with pytest.raises(TableError, match="is of the model abc123def456, but this is 000"):
        LogRows(folder, "000")
    (folder / "changes.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(TableError, match="damaged"):
        LogRows(folder, "abc123def456")


def test_what_a_service_answered_is_what_is_read(
    client: Any, state: Any, source: Any, row: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    change = {"add_nodes": [row(320), row(321)], "add_edges": [[row(320)["id"], row(321)["id"]]]}
    answered = client.post("/v1/changes", json=change).json()
    rows, _ = LogRows(tmp_path / "state", answered["model"]).read(0, 1e12)
    assert rows.ids == [each["id"] for each in answered["answers"]]
    assert rows.scores.tolist() == [each["score"] for each in answered["answers"]]
    assert rows.predicted == [str(each["predicted"]) for each in answered["answers"]]
    assert rows.links_among == 1
    # The first digits of the hash of the manifest, as the command computes it.
    manifest = (Path(source.model) / "manifest.json").read_bytes()
    assert answered["model"] == hashlib.sha256(manifest).hexdigest()[:12]


def test_the_command_watches_a_service_that_runs(
    client: Any, source: Any, row: Callable[..., dict[str, Any]], tmp_path: Path, cli: Callable[..., Any]
) -> None:
    client.post("/v1/changes", json={"add_nodes": [row(320), row(321)]})
    given = [str(source.model), "--log", str(tmp_path / "state"), "--state", str(tmp_path / "watch.json")]
    done = cli("watch", *given, "--window", "1h", "--until", "2100-01-01", "--json")
    [window] = map(msgspec.json.decode, done.stdout.splitlines())
    assert (window["kind"], window["drift"]["num_nodes"]) == ("window", 2)
