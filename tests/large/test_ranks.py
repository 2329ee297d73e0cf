"""Several ranks on one graph: the same files as one process writes, and a clear end if one of them is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import load_file
from torch.distributed import HashStore

from oddnode.large import heartbeat
from oddnode.large.heartbeat import Heartbeat, RankProcess
from oddnode.tables import TableOptions, TrainingTables
from tests.large.graphs import as_folder, random_graph

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "oddnode")
CLI = Callable[..., subprocess.CompletedProcess[str]]


def test_a_process_has_ended_before_anybody_has_waited_for_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = RankProcess(process.pid, socket.gethostname())
    assert not found.has_ended
    assert not RankProcess(process.pid, "another-machine").has_ended
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert found.has_ended
    process.communicate()
    assert found.has_ended
    assert not RankProcess(process.pid, "another-machine").has_ended


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["bench"], "`oddnode bench` cannot run under torchrun"),
        (["fit", "--nodes", "n.csv", "--edges", "e.csv", "--out", "m"], "give it as --graph"),
        (["score", "m", "--nodes", "n.csv", "--edges", "e.csv", "--out", "s.csv"], "give it as --graph"),
    ],
)
def test_what_is_not_divided_is_refused(monkeypatch: pytest.MonkeyPatch, command: list[str], message: str) -> None:
    from oddnode.cli.app import app

    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=message):
        app(command, standalone_mode=False)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of several blocks, in which few nodes have most edges; nothing is stored with it yet."""
    place = tmp_path_factory.mktemp("ranks")
    num_nodes, rng = 150_000, np.random.default_rng(0)
    kind = rng.integers(3, size=num_nodes)
    label = ["abc"[each] if chosen else None for each, chosen in zip(kind, rng.random(num_nodes) < 0.01, strict=True)]
    columns = {f"f{i}": rng.standard_normal(num_nodes) + kind for i in range(4)}
    parquet.write_table(pa.table({"id": np.arange(num_nodes), "label": label} | columns), place / "nodes.parquet")
    ends = {
        "source": (rng.random(150_000) ** 3 * num_nodes).astype(int),
        "target": rng.integers(num_nodes, size=150_000),
    }
    parquet.write_table(pa.table(ends), place / "edges.parquet")
    options = TableOptions(id_column="id", label_column="label")
    TrainingTables(place / "nodes.parquet", place / "edges.parquet", options).prepare(place / "graph")
    return place / "graph"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums are rounded as in a rank, which has one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def started(log: Path, command: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
    """Start a command that writes all that it says to a file."""
    with log.open("wb") as file:
        return subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment
        )


# Ranks that no torchrun watches, as if each were on a machine of its own; the first one's end is the end.
FORKED = """
import os, signal, sys
import oddnode.large

children = []
for rank in range(int(os.environ["WORLD_SIZE"])):
    children.append(os.fork())
    if not children[-1]:
        os.environ["RANK"] = str(rank)
        try:
            exec(sys.argv.pop(1))
        except Exception:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])
for child in children[1:]:
    if status:
        os.kill(child, signal.SIGKILL)
    status = max(status, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.exit(status)
"""


def forked(log: Path, world_size: int, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start ranks that run some code."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = {"TORCHELASTIC_RUN_ID": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    run["CUDA_VISIBLE_DEVICES"] = ""  # a forked process cannot use a GPU
    return started(log, [sys.executable, "-c", FORKED, code, *arguments], WORLD_SIZE=str(world_size), **run)


MAIN = "from oddnode.cli import main; main()"


@pytest.mark.slow
def test_two_ranks_write_the_same_model_and_scores_as_one_process(
    graph: Path, tmp_path: Path, cli: CLI, one_thread: None
) -> None:
    alone, together = (shutil.copytree(graph, tmp_path / name / "graph") for name in ("alone", "together"))

    def commands(place: Path) -> tuple[list[str], list[str]]:
        folder, model, scores = (str(place / name) for name in ("graph", "model", "scores.parquet"))
        settings = ["--method", "nodesafe", "--set", "epochs=5", "--set", "num_hops=4"]
        return ["fit", *settings, "--graph", folder, "--out", model], [
            "score",
            model,
            "--graph",
            folder,
            "--out",
            scores,
        ]

    for command in commands(alone.parent):
        assert cli(*command).returncode == 0
    fit, score = commands(together.parent)
    assert started(tmp_path / "fit", [*TORCHRUN, *fit]).wait(120) == 0, (tmp_path / "fit").read_text()
    assert forked(tmp_path / "score", 2, MAIN, *score).wait(120) == 0, (tmp_path / "score").read_text()
    one, two = (load_file(place.parent / "model/model.safetensors") for place in (alone, together))
    for tensors in (one, two):
        del tensors["extra.table_rows"]  # hashes of ids by a random key
    torch.testing.assert_close(two, one, rtol=0, atol=0)
    for name in ("scores.parquet", "graph/ax.bin", "graph/ax-moments.bin"):
        assert (alone.parent / name).read_bytes() == (together.parent / name).read_bytes(), name
    assert {path.name for path in alone.iterdir()} == {path.name for path in together.iterdir()}
    assert len(list(together.glob("support-*.bin"))) == 1
    assert (tmp_path / "fit").read_text().count("\nnodes: ") == 1  # the others print nothing


def process_of_rank(rank: int, log: Path) -> int:
    """The process that the log names, once it does."""
    for _ in range(600):
        found = re.search(rf"^rank {rank}: process (\d+) on {socket.gethostname()}$", log.read_text(), re.MULTILINE)
        if found:
            return int(found[1])
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it has not come to that within a minute")


def check_end(run: subprocess.Popen[bytes], log: Path, message: str, out: Path, seconds: float) -> None:
    """A run ends in time, with one error, which says why; nothing is left of its output."""
    start = time.monotonic()
    assert run.wait(60) != 0
    assert time.monotonic() - start < seconds
    errors = [line for line in log.read_text().splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, log.read_text()
    assert message in errors[0]
    assert not [path for path in out.parent.iterdir() if out.name in path.name]


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_run_with_a_message(graph: Path, tmp_path: Path) -> None:
    folder, out, log = shutil.copytree(graph, tmp_path / "graph"), tmp_path / "model", tmp_path / "log"
    fit = ("fit", "--graph", str(folder), "--method", "nodesafe", "--set", "epochs=1000000", "--out", str(out))
    run = started(log, [*TORCHRUN, *fit])
    pid = process_of_rank(1, log)
    until((folder / "ax-moments.bin").exists)  # they have worked together, and train now
    os.kill(pid, signal.SIGKILL)
    check_end(run, log, f"rank 1 (process {pid} on {socket.gethostname()}) has ended", out, seconds=20)
    assert "Traceback" not in log.read_text().partition("error: ")[0]


EXCHANGE = """
import torch
from oddnode.large import arrays, joined, torchrun as module
from oddnode.large.ranks import active_ranks

with joined() as ranks:
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool):
        whole = (torch.arange(44) % 7).reshape(11, 4).to(dtype)
        for bounds in ([0, 5, 5, 11], [0, 0, 1, 11], [0, 11, 11, 11], [2, 4, 8, 11], [11, 11, 11, 11]):
            for at_once in (1, 40, 2**26):
                module._BYTES_AT_ONCE = at_once
                own = slice(bounds[ranks.rank], bounds[ranks.rank + 1])
                around = torch.zeros(11, 6, dtype=dtype)
                for out in (torch.zeros(11, 4, dtype=dtype), around[:, 1:5]):
                    assert not arrays.is_shared(out)
                    out[own] = whole[own]
                    assert ranks.all_gather(out, bounds) is out
                    assert torch.equal(out[bounds[0]:], whole[bounds[0]:])
                assert not around[:, [0, 5]].any()
    assert ranks.on_rank_zero(lambda: [ranks.rank, None], list[int | None]) == [0, None]
    weights = torch.full((3,), ranks.rank + 1.0)
    ranks.broadcast_([weights])
    assert weights.tolist() == [1.0, 1.0, 1.0]
    try:
        ranks.on_rank_zero(ranks.barrier, None)  # a wait without end, for something that the others do not do
    except AssertionError as error:
        assert ranks.rank == 0 and "needs the others" in str(error)
        ranks.on_rank_zero(lambda: None, None)
    parts = [slice(start, start + 1) for start in range(5)]
    filled = torch.zeros(5)
    for rows in ranks.shards(filled, parts):
        filled[rows] = rows.start + 0.5
    assert filled.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]
assert active_ranks().world_size == 1
print("sound", flush=True)
"""


def test_ranks_exchange_rows_of_all_sizes(tmp_path: Path) -> None:
    run = forked(tmp_path / "log", 3, EXCHANGE)
    assert run.wait(60) == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text().count("sound") == 3


SHARE = """
import sys
from pathlib import Path
import torch
from oddnode.large import arrays, buffers, joined, torchrun

place, can_open = Path(sys.argv[1]), sys.argv[2] == "True"
if not can_open:  # as on another machine, where this process has another number
    torchrun._SharedFile.opened = lambda self: None
with joined() as ranks:
    assert ranks.share_memory == can_open
    assert ranks.memory_share // (3 if can_open else 1) == ranks.own_memory_share
    for largest, in_file in ((2**28, False), (0, True)):
        buffers._LARGEST_IN_MEMORY = largest
        buffer = buffers.scratch_buffer(place, (6, 2), torch.float64)
        assert (arrays.is_shared(buffer[:, :1]), arrays.is_in_file(buffer)) == (can_open, in_file)
        parts = [slice(start, start + 1) for start in range(6)]
        for rows in ranks.shards(buffer, parts):
            buffer[rows] = rows.start + 0.5
        assert buffer[:, 1].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
        ranks.barrier()
        if ranks.rank == 1:
            buffer[5] = 7.0
        ranks.barrier()
        assert buffer[5, 0] == (7.0 if can_open or ranks.rank == 1 else 5.5)
        ranks.barrier()
        buffer[5] = 5.5
        copy = buffers.copied(buffer[:, 1:])
        assert copy.is_contiguous() and copy.squeeze(1).tolist() == buffer[:, 1].tolist()
        mine = buffers.own_copy(buffer)
        assert (mine is buffer) != can_open and torch.equal(mine, buffer)
        with ranks.by_itself():
            assert not ranks.share_memory and not arrays.is_shared(buffers.scratch_buffer(place, (3,), torch.float32))
            with ranks.by_itself():
                pass
            assert not ranks.share_memory  # still by itself
    real = torchrun._SharedFile.opened
    torchrun._SharedFile.opened = lambda self: None if ranks.rank == 2 else real(self)  # a disk that it cannot read
    buffer = buffers.scratch_buffer(place, (6, 2), torch.float64)
    assert not arrays.is_shared(buffer)
    for rows in ranks.shards(buffer, parts):
        buffer[rows] = rows.start + 0.5
    assert buffer[4:, 0].tolist() == [4.5, 5.5]
    assert buffers.copied(torch.ones(0, 3)).shape == (0, 3)
    assert not list(place.iterdir())
print("sound", flush=True)
"""


@pytest.mark.parametrize("can_open", [True, False])
def test_ranks_on_one_machine_have_results_in_the_same_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_open: bool
) -> None:
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    run = forked(tmp_path / "log", 3, SHARE, str(place), str(can_open))
    assert run.wait(60) == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text().count("sound") == 3


# Small blocks and chunks, so that a small graph has many.
METHODS = """
import sys
import torch
from oddnode import Detector
from oddnode.large import GraphFolder, arrays, graph, joined, product, torchrun

product._ROWS_AT_ONCE = 16
graph.row_chunks = lambda rows, row_bytes, *limit: arrays.row_chunks(rows, row_bytes, 16 * row_bytes)


def found(method, path):
    folder = GraphFolder(path)
    detector = Detector.from_recipe(method, epochs=3, device="cpu").fit(folder).calibrate(folder)
    outputs = detector.outputs(folder)
    explained = detector.explain(outputs)
    return detector.score_samples(outputs), detector.predict_proba(outputs), explained.own_score, detector.threshold_


alone, together, can_share, *methods = sys.argv[1:]
if can_share == "False":
    torchrun.JoinedRanks.try_to_share = lambda self: None
expected = {method: found(method, alone) for method in methods}
with joined() as ranks:
    for method in methods:
        for ours, theirs in zip(found(method, together), expected[method], strict=True):
            assert torch.equal(torch.as_tensor(ours), torch.as_tensor(theirs)), method
print("sound", flush=True)
"""
ON_DISK = (
    *("msp", "mahalanobis", "energy", "gnnsafe", "gnnsafe+logitnorm", "nodesafe", "msp-prop", "nodesafe-msp"),
    *("nodesafe-ensemble", "knn", "grasp", "nonzeros", "degree", "neighbour-cosine", "nodesafe-evidence"),
)


@pytest.mark.slow
@pytest.mark.parametrize("methods", [ON_DISK, ("nodesafe", "nodesafe-evidence")], ids=["one machine", "several"])
def test_every_method_scores_with_ranks_as_with_one_process(tmp_path: Path, methods: tuple[str, ...]) -> None:
    data = random_graph(num_nodes=200, num_edges=900, dtype=torch.float32)
    folders = [str(as_folder(data, tmp_path / name).path) for name in ("alone", "together")]
    run = forked(tmp_path / "log", 2, METHODS, *folders, str(methods is ON_DISK), *methods)
    assert run.wait(120) == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text().count("sound") == 2


def test_a_rank_that_falls_silent_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "_LOST_AFTER_SECONDS", 1.0)
    store, ends = HashStore(), list[str]()
    monkeypatch.setattr(Heartbeat, "_end", lambda self, reason, **_: ends.append(reason))
    first, second = (Heartbeat(store, rank, 2) for rank in range(2))
    first.meet()
    time.sleep(1.5)
    assert not ends
    second.stop()
    until(lambda: bool(ends))
    first.stop()
    assert ends[0] == f"rank 1 (process {os.getpid()} on {socket.gethostname()}) has not answered for 1 s"


def test_a_rank_that_hangs_before_its_first_beat_is_lost_as_soon_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "_LOST_AFTER_SECONDS", 0.5)
    store, ends = HashStore(), list[str]()
    monkeypatch.setattr(Heartbeat, "_end", lambda self, reason, **_: ends.append(reason))
    first, second = Heartbeat(store, 0, 2), Heartbeat(store, 1, 2)
    second.stop()
    time.sleep(0.7)
    assert not ends  # until they have met, it may still be importing torch
    first.meet()
    until(lambda: bool(ends))
    first.stop()
    assert "rank 1 (process" in ends[0]
    assert "has not answered for 0 s" in ends[0]


class Clock:
    """The time, as it is for a process that was suspended."""

    suspended = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.suspended


@pytest.mark.parametrize("store_is_gone", [False, True])
def test_a_rank_that_wakes_up_accuses_nobody_else(monkeypatch: pytest.MonkeyPatch, store_is_gone: bool) -> None:
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "time", Clock())
    store, ends = HashStore(), list[str]()
    monkeypatch.setattr(Heartbeat, "_end", lambda self, reason, **_: ends.append(reason))
    hearts = [Heartbeat(store, rank, 2) for rank in range(2)]
    for each in hearts:
        each.meet()
    time.sleep(0.3)
    if store_is_gone:
        monkeypatch.setattr(hearts[1], "_store", Mock(add=Mock(side_effect=RuntimeError)))
    Clock.suspended += 62.0
    time.sleep(0.3)
    for each in hearts:
        each.stop()
    assert bool(ends) == store_is_gone
    assert all("rank 1 (process" in end and "was suspended for 62 s, and the others gave it up" in end for end in ends)


ENDS_AFTER_ITS_RESULT = """
import os, signal
from oddnode.large import joined
from oddnode.large.heartbeat import RankLost

try:
    with joined() as ranks:
        if ranks.rank == 1:
            ranks.barrier = lambda: os.kill(os.getpid(), signal.SIGKILL)
except RankLost as lost:
    print(lost, flush=True)
"""


def test_a_rank_that_ends_after_the_result_is_whole_says_so(tmp_path: Path) -> None:
    forked(tmp_path / "log", 2, ENDS_AFTER_ITS_RESULT).wait(60)
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if line.endswith("has ended, but only after the result was written: it is whole")]


def test_the_first_rank_leaves_last_and_notices_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_BEAT_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "_LOST_AFTER_SECONDS", 0.5)
    store, ends = HashStore(), list[str]()
    monkeypatch.setattr(Heartbeat, "_end", lambda self, reason, **_: ends.append(reason))
    hearts = [Heartbeat(store, rank, 3) for rank in range(3)]
    for each in hearts:
        each.meet()
    hearts[1].leave()
    hearts[2].stop()
    last = threading.Thread(target=hearts[0].leave)
    last.start()
    until(lambda: bool(ends))
    assert last.is_alive()
    hearts[2].leave()
    last.join(10)
    assert not last.is_alive()
    assert all("rank 2 (" in end and "has not answered for" in end for end in ends)


def test_one_rank_tells_why_a_run_ends() -> None:
    store = HashStore()
    hearts = [Heartbeat(store, rank, 3) for rank in range(3)]
    assert [each.is_first_to_tell() for each in hearts] == [True, False, False]
    for each in hearts:
        each.stop()
