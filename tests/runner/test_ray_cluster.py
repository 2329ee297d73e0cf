"""A real Ray cluster of this machine with two workers; one of them is killed.

The cluster takes seconds to start, so the tests share it. Without Ray they are skipped.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from oddnode.bench import benchmark
from oddnode.paper.run import run_plan
from oddnode.runner.engine import Futures, WorkerDied
from oddnode.runner.ray_cluster import RayExecutor
from tests.paper_helpers import CODE, detection_tables, run, tiny_plan

pytestmark = pytest.mark.slow

STARTED = re.compile(r"worker (\d+) on (\S+) has started a call")
DIED = re.compile(r"worker (\d+) on \S+ died \(\w+\); running again: (.*)")


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    pytest.importorskip("ray", reason="RAY IS NOT TESTED: pip install 'oddnode[ray]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "local")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # where Ray has no cluster it keeps to the loopback
        with RayExecutor(max_workers=2) as executor:
            yield executor


def test_calls_run_in_two_other_processes(executor: RayExecutor, tmp_path: Path) -> None:
    calls = [executor.submit(_meet, tmp_path) for _ in range(2)]
    processes = {call.result() for call in calls}
    assert len(processes) == 2
    assert os.getpid() not in processes


def _meet(folder: Path) -> int:
    """Wait for another process, if there is one."""
    (folder / str(os.getpid())).touch()
    deadline = time.monotonic() + 300
    while len(list(folder.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    return os.getpid()


def test_errors_come_back_as_they_were(executor: RayExecutor) -> None:
    with pytest.raises(KeyError, match="gone") as caught:
        executor.submit(dict[str, int]().__getitem__, "gone").result()
    assert type(caught.value) is KeyError


def test_a_call_whose_worker_is_killed_says_which(executor: RayExecutor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "oddnode.runner")
    call = executor.submit(time.sleep, 120)
    while not (found := STARTED.search(caplog.text)):
        time.sleep(0.05)
    assert found[2] == socket.gethostname()
    os.kill(int(found[1]), signal.SIGKILL)
    with pytest.raises(WorkerDied, match=f"worker {found[1]} on {found[2]} died"):
        call.result()


def test_no_room_or_another_source_is_refused(executor: RayExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="but a training needs 99 cores"):
        RayExecutor(threads=99)
    assert executor.submit(os.getpid).result() != os.getpid()  # the connection is not that executor's to close
    monkeypatch.setattr(executor, "_needs", (*executor._needs[:2], "older"))
    with pytest.raises(ValueError, match=r"a different source of oddnode.*\(key older\); install the same version"):
        executor.submit(os.getpid).result()


@contextmanager
def _killer(caplog: pytest.LogCaptureFixture) -> Iterator[list[int]]:
    """Kill workers that the log names, until the log says that one of them was missed."""
    killed: list[int] = []
    is_over = Event()

    def kill() -> None:
        seen = 0
        while not is_over.wait(0.02) and not DIED.search(caplog.text):
            started = [int(pid) for pid, _ in STARTED.findall(caplog.text)]
            if len(started) > seen:
                seen = len(started)
                killed.append(started[-1])
                with suppress(ProcessLookupError):
                    os.kill(started[-1], signal.SIGKILL)

    thread = Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()


def test_a_plan_survives_a_kill(executor: RayExecutor, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    plan = tiny_plan("claims", "table3", seeds=2)
    run(plan, tmp_path / "alone")
    caplog.set_level(logging.INFO, "oddnode.runner")
    engine = Futures(executor, executor.max_workers)
    with _killer(caplog) as killed:
        summary = run_plan(plan, tmp_path / "ray", CODE, engine=engine)
    died = DIED.findall(caplog.text)
    assert died, f"{killed} were killed, but no training was missed"
    assert {int(pid) for pid, _ in died} <= set(killed)
    assert {label for _, label in died} <= {training.label for training in plan.trainings}
    assert (summary.made, summary.lost) == (len(plan.trainings), [])
    assert detection_tables(plan, tmp_path / "ray") == detection_tables(plan, tmp_path / "alone")


def test_a_benchmark_gives_the_numbers_of_this_machine(executor: RayExecutor) -> None:
    engine = Futures(executor, executor.max_workers)
    there = benchmark("digits/label", ["msp", "energy"], seeds=2, jobs=2, device="cpu", engine=engine)
    here = benchmark("digits/label", ["msp", "energy"], seeds=2, jobs=1, device="cpu")
    assert [result.mean("auroc") for result in there] == pytest.approx([result.mean("auroc") for result in here])


def test_running_calls_are_ended_when_the_executor_is_told_to(executor: RayExecutor) -> None:
    """The last test of this file: the executor takes no calls after it."""
    calls = [executor.submit(time.sleep, 300) for _ in range(3)]
    while not executor._running:
        time.sleep(0.05)
    executor.shutdown(cancel_futures=True)
    for call in calls:
        with pytest.raises(CancelledError):
            call.result()
