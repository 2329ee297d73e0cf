"""Runs that are killed, run twice at once, or find damage: the tables come out the same, bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oddnode.paper.plan import Plan
from oddnode.paper.run import Progress, default_jobs, run_plan
from oddnode.paper.store import Store
from tests.paper_helpers import CODE, detection_tables, run, tiny_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return tiny_plan("claims", "table3", seeds=5)


@pytest.fixture(scope="module")
def start() -> Any:
    """Starts processes that have torch already: the time a test kills them in is working time."""
    context: Any = get_context("forkserver")
    context.set_forkserver_preload(["oddnode.runner.execute"])

    def begin(target: Any, *arguments: Any) -> BaseProcess:
        process = context.Process(target=target, args=arguments)
        process.start()
        return process

    begin(os.getpid).join()  # the server imports torch before the first clock runs
    return begin


class Undisturbed(NamedTuple):
    folder: Path
    tables: dict[str, str]
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(plan: Plan, start: Any, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """A run that nobody stops; in a process of its own, like all that is compared with it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    began = time.monotonic()
    process = start(run, plan, folder)
    process.join()
    assert process.exitcode == 0
    return Undisturbed(folder, detection_tables(plan, folder), time.monotonic() - began)


def finished(folder: Path) -> set[str]:
    with Store(folder, CODE) as store:
        return store.finished()


def test_twenty_random_kills_change_nothing(plan: Plan, undisturbed: Undisturbed, start: Any, tmp_path: Path) -> None:
    rng = random.Random(0)
    kills, at_work, window = 0, 0, undisturbed.seconds / 4
    while kills < 20 or at_work < 5:
        before = finished(tmp_path)
        process = start(run, plan, tmp_path)
        process.join(rng.uniform(0, window))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        done = finished(tmp_path)
        if process.exitcode:
            kills += 1
            at_work += done != before
        with Store(tmp_path, CODE) as store:
            assert store.damaged(plan.trainings) == []
            if len(done) == len(plan.trainings):  # faster than thought: some of it is to be done again
                for training in rng.sample(plan.trainings, len(plan.trainings) // 2):
                    store.drop(training)
        if kills % 5 == 0 and at_work < kills / 4:
            window *= 1.5  # a busy machine: the kills are to fall into working time
    process = start(run, plan, tmp_path)
    process.join()
    assert detection_tables(plan, tmp_path) == undisturbed.tables


def _run_and_tell(plan: Plan, folder: Path, said: Path) -> None:
    summary = run(plan, folder)
    said.write_text(json.dumps([summary.made, summary.found, summary.repaired]))


def test_two_processes_on_a_store_share_work(plan: Plan, undisturbed: Undisturbed, start: Any, tmp_path: Path) -> None:
    said = [tmp_path / "first", tmp_path / "second"]
    workers = [start(_run_and_tell, plan, tmp_path, path) for path in said]
    for process in workers:
        process.join()
    assert [process.exitcode for process in workers] == [0, 0]
    made = [json.loads(path.read_text())[0] for path in said]
    assert all(made)
    assert sum(made) == len(plan.trainings)
    assert detection_tables(plan, tmp_path) == undisturbed.tables


def test_several_jobs_give_the_same_numbers_and_progress(plan: Plan, undisturbed: Undisturbed, tmp_path: Path) -> None:
    seen: list[Progress] = []
    run_plan(plan, tmp_path, CODE, jobs=2, on_progress=seen.append)
    assert detection_tables(plan, tmp_path) == undisturbed.tables
    assert (seen[0].done, seen[-1].done, seen[-1].total) == (0, len(plan.trainings), len(plan.trainings))
    assert seen[-1].share == pytest.approx(1.0)


def test_a_run_that_is_done_makes_good_damage(plan: Plan, undisturbed: Undisturbed, start: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(undisturbed.folder, tmp_path / "copy"))
    assert run_plan(plan, folder, CODE, jobs=2).found == len(plan.trainings)
    file = folder / "runs.sqlite"
    assert file.read_bytes() == (undisturbed.folder / "runs.sqlite").read_bytes()
    hurt = plan.trainings[3]
    with closing(sqlite3.connect(file)) as db, db:
        [blob] = db.execute("SELECT arrays FROM trainings WHERE identity = ?", (hurt.identity,)).fetchone()
        flipped = blob[:100] + bytes([blob[100] ^ 1]) + blob[101:]
        db.execute("UPDATE trainings SET arrays = ? WHERE identity = ?", (flipped, hurt.identity))
    process = start(_run_and_tell, plan, folder, tmp_path / "said")
    process.join()
    assert json.loads((tmp_path / "said").read_text()) == [1, len(plan.trainings) - 1, [hurt.label]]
    assert detection_tables(plan, folder) == undisturbed.tables


def test_scores_of_single_nodes_are_kept_as_long_as_asked_for(tmp_path: Path) -> None:
    plan = tiny_plan("claims", seeds=2)
    run_plan(plan, tmp_path, CODE, keep_scores=1)
    with Store(tmp_path, CODE) as store:
        kept = {record.training.seed: bool(record.arrays) for record in store.records()}
        assert kept == {0: True, 1: False}
        for record in store.records():
            assert list(record.facts["seconds"]) == ["fit", "forward", "load", "pack", "score"]
            assert min(record.facts["seconds"].values()) >= 0
        assert len({record.metrics(record.training.methods[0])["auroc"] for record in store.records()}) > 1


def test_another_version_of_the_source_starts_anew_unless_told_otherwise(tmp_path: Path) -> None:
    plan = tiny_plan("claims")
    run_plan(plan, tmp_path, "old")
    assert run_plan(plan, tmp_path, "new", any_version=True).found == len(plan.trainings)
    assert run_plan(plan, tmp_path, "new").found == 0


def test_on_a_gpu_seeds_in_one_go_give_what_they_give_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("oddnode.paper.run.num_cores", lambda: 64)
    assert [default_jobs(device) for device in ("cpu", "cuda")] == [64, 12]  # more would wait for each other
    plan = tiny_plan("claims", "table3", seeds=2)
    run(plan, tmp_path / "alone")
    # As on a GPU: all trainings of a task in one group, and their seeds fitted in one call.
    monkeypatch.setattr("oddnode.paper.run.is_gpu", lambda device: True)
    assert run(plan, tmp_path / "stacked").made == len(plan.trainings)
    assert detection_tables(plan, tmp_path / "stacked") == detection_tables(plan, tmp_path / "alone")


def test_a_training_that_fails_is_reported_and_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plan = tiny_plan("claims")
    with monkeypatch.context() as broken:
        broken.setattr("oddnode.runner.execute.TaskOutputs", _no_memory)
        summary = run_plan(plan, tmp_path, CODE)
    assert sorted(summary.lost) == sorted(training.label for training in plan.trainings)
    with Store(tmp_path, CODE) as store:
        assert {record.error for record in store.records()} == {"MemoryError: all gone"}
    again = run_plan(plan, tmp_path, CODE)
    assert (again.found, again.lost) == (0, [])


def _no_memory(*_: object) -> None:
    raise MemoryError("all gone")


@pytest.mark.slow
def test_workers_die_with_their_parent_and_the_command_goes_on(tmp_path: Path, cli: Any) -> None:
    chosen = ["paper", "--smoke", "--out", str(tmp_path), "--only", "table10", "--protocol", "clean", "--seeds", "1"]
    command = [sys.executable, "-m", "oddnode", *chosen, "--jobs", "2", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while _count(tmp_path) < 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = _children(process.pid)
    process.kill()
    process.wait()
    assert workers
    while any(map(_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(_alive, workers))
    reached = _count(tmp_path)
    done = cli(*chosen, "--jobs", "1", "--device", "cpu", "--json")
    assert f'"done_before": {reached}' in done.stdout
    assert (tmp_path / "tables" / "table10.md").exists()


def _count(folder: Path) -> int:
    if not (folder / "runs.sqlite").exists():
        return 0
    with Store(folder) as store:
        return len(store.finished())


def _children(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    if not listed.exists():
        pytest.skip("no /proc to find the workers in")
    children = [int(child) for child in listed.read_text().split()]
    return children + [grandchild for child in children for grandchild in _children(child)]


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
