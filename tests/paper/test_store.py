"""The store of runs: whole records, checksums, claims that die with their process."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from oddnode.paper.record import DamagedRecord, StoreError
from oddnode.paper.store import Store, recover
from oddnode.runner.work import Training

TRAINING = Training("digits/label", "clean", "gcn", 0, ("msp", "energy"), (("lambda2", 10.0),), 5, "[...]")
SCORES = np.linspace(-3, 3, 7, dtype=np.float32) / 3
FACTS = {"methods": {"msp": {"auroc": 91.25, "tests": {}}}, "graphs": {"id": "label", "label": "label"}}


def save(store: Store, training: Training = TRAINING, code: str = "a") -> None:
    store.save(training, code, FACTS, {"scores/msp/label": SCORES, "predicted/label": np.arange(7, dtype=np.int16)})
    graph = {"y/label": np.arange(7), "degree/label": np.ones(7), "id_mask": SCORES > 0, "ood_mask/label": SCORES < 0}
    store.save_graphs(training, FACTS, graph)


def other(number: int) -> Training:
    return Training("digits/label", "clean", "gcn", number, ("msp",))


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        save(store)
    with Store(tmp_path) as store:
        record = store.get(TRAINING)
        assert record is not None
        assert record.training == TRAINING
        assert record.metrics("msp")["auroc"] == 91.25
        assert record.scores("msp")["id"].dtype == np.float32
        np.testing.assert_array_equal(record.scores("msp")["label"], SCORES)
        graphs = store.graphs(TRAINING)
        assert graphs.tests == ["label"]
        np.testing.assert_array_equal(graphs.ood_mask["label"], SCORES < 0)
        np.testing.assert_array_equal(graphs.y["id"], np.arange(7))
        rows = store._db.execute("SELECT task, method, seed, auroc FROM results").fetchall()  # as SQL tools see it
        assert rows == [("digits/label", "msp", 0, 91.25)]
        store.save(TRAINING, "a", FACTS, {})
        [record] = store.records()
        with pytest.raises(StoreError, match="was not kept"):
            record.scores("msp")


def test_records_are_found_by_what_they_are_of_and_by_version(tmp_path: Path) -> None:
    with Store(tmp_path, code="a") as store:
        save(store, code="a")
        save(store, other(1), code="b")
        assert store.finished() == {TRAINING.identity}
        assert store.get(other(1)) is None
    with Store(tmp_path) as store:
        assert store.finished() == {TRAINING.identity, other(1).identity}
        assert len(store.records()) == 2
        assert [r.training.seed for r in store.records(seed=1)] == [1]
        assert [r.training.seed for r in store.records(method="energy")] == [0]
        assert [r.training.seed for r in store.records(settings=())] == [1]
        assert store.records(task="cora/label") == []
    # Scorers do not determine a training, but settings do.
    assert Training("t", "clean", "gcn", 0, ("msp",)).identity == Training("t", "clean", "gcn", 0, ("odin",)).identity
    assert Training("t", "clean", "gcn", 0, ("msp",)).identity != Training("t", "clean", "gcn", 1, ("msp",)).identity
    changed = Training("t", "clean", "gcn", 0, ("msp",), (("lambda1", 0.5),))
    assert Training("t", "clean", "gcn", 0, ("msp",)).identity != changed.identity


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("facts", "{"), ("facts", '{"methods": {}}'), ("arrays", b"no zip"), ("checksum", ""), ("training", "[]")],
        *[(column, 7) for column in ("task", "protocol", "backbone", "seed")],  # contradicts the training
    ],
)
def test_a_damaged_record_is_found(tmp_path: Path, column: str, value: object) -> None:
    with Store(tmp_path) as store, Store(tmp_path / "other") as there:
        save(store)
        save(store, other(1))
        store._db.execute(f"UPDATE trainings SET {column} = ? WHERE seed = 0", (value,))
        with pytest.raises(DamagedRecord, match="contradict" if value == 7 else "damaged"):
            store.get(TRAINING)
        assert store.damaged([TRAINING, other(1), other(2)]) == [TRAINING]
        assert {r.training.seed for r in store.records()} == {1}
        assert there.take_from(tmp_path) == 1
        store._db.execute("UPDATE graphs SET arrays = x'00'")
        assert store.damaged([other(1)]) == [other(1)]


def test_sound_records_are_saved_out_of_a_damaged_file(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for number in range(60):
            save(store, other(number))
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        [page] = store._db.execute("PRAGMA page_size").fetchone()
    assert recover(tmp_path) is None
    file = tmp_path / "runs.sqlite"
    content = bytearray(file.read_bytes())
    middle = len(content) // page // 2 * page
    content[middle : middle + page] = b"\xff" * page
    file.write_bytes(content)
    saved = recover(tmp_path)
    assert saved is not None
    assert (tmp_path / "damaged-1.sqlite").exists()
    with Store(tmp_path) as store:
        assert 0 < len(store.records()) == saved < 60
        assert store.damaged(r.training for r in store.records()) == []
    assert recover(tmp_path) is None


@pytest.fixture(scope="module")
def sound_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store of six records, closed."""
    folder = tmp_path_factory.mktemp("sound")
    with Store(folder) as store:
        for number in range(6):
            save(store, other(number))
    return (folder / "runs.sqlite").read_bytes()


def flipped(content: bytes, bit: int) -> bytes:
    return content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]


def repaired(folder: Path) -> tuple[int | None, list[Training]]:
    """What the command does with a store that it finds: recover the file, drop damaged records, train again."""
    wanted = [other(number) for number in range(6)]
    found = recover(folder)
    with Store(folder) as store:
        store.records()
        damaged = store.damaged(wanted)
        for training in damaged:
            store.drop(training)
        for training in wanted:
            if not store.is_finished(training):
                save(store, training)
        assert {r.training for r in store.records()} == set(wanted)
        assert store.damaged(wanted) == []
        assert store._db.execute("SELECT count(*) FROM trainings").fetchone() == (6,)
        for record in store.records():
            np.testing.assert_array_equal(record.scores("msp")["label"], SCORES)
    assert recover(folder) is None
    return found, damaged


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_no_flipped_bit_stops_a_run_or_doubles_a_row(tmp_path: Path, sound_file: bytes, seed: int | None) -> None:
    anywhere = random.Random(seed).sample(range(800, 8 * len(sound_file)), 40)
    for bit in range(0, 800, 9) if seed is None else anywhere:  # in the header, or behind it
        folder = tmp_path / str(bit)
        folder.mkdir()
        (folder / "runs.sqlite").write_bytes(flipped(sound_file, bit))
        found, damaged = repaired(folder)
        assert found in ((None, 0, 6) if seed is None else (None, *range(7))), f"bit {bit}"
        assert len(damaged) <= (seed is not None), f"bit {bit}"


@pytest.mark.parametrize("version", [3, 0xF3])
def test_a_file_that_sqlite_would_only_read_is_copied(tmp_path: Path, sound_file: bytes, version: int) -> None:
    (tmp_path / "runs.sqlite").write_bytes(sound_file[:18] + bytes([version]) + sound_file[19:])
    assert recover(tmp_path) == 6
    with Store(tmp_path) as store:
        save(store, other(6))
        assert len(store.records()) == 7


@pytest.mark.parametrize(
    ("text", "place", "mask"),
    [(b'"methods"', 3, 0x80), (b'{"graphs"', 2, 1), (b'"auroc"', 1, 1), (b'"epochs"', 4, 0x80)],
)
def test_a_flipped_bit_of_text_is_found(tmp_path: Path, sound_file: bytes, text: bytes, place: int, mask: int) -> None:
    content = bytearray(sound_file)
    content[content.rindex(text) + place] ^= mask
    (tmp_path / "runs.sqlite").write_bytes(content)
    found, damaged = repaired(tmp_path)
    assert found is None
    assert len(damaged) == 1  # its record or its graphs


def test_rows_that_an_index_does_not_know_are_not_doubled(tmp_path: Path) -> None:
    """The index loses a row, the record is written again, and the table has it twice."""
    with Store(tmp_path) as store:
        save(store, other(0))
        store._db.execute("PRAGMA writable_schema = ON")
        [[index]] = store._db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_trainings_1'")
        [[page]] = store._db.execute("PRAGMA page_size")
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray((tmp_path / "runs.sqlite").read_bytes())
    content[(index - 1) * page + 3 : (index - 1) * page + 5] = bytes(2)  # no cells in this page
    (tmp_path / "runs.sqlite").write_bytes(content)
    with Store(tmp_path) as store:
        save(store, other(0))
        assert store._db.execute("SELECT count(*) FROM trainings NOT INDEXED").fetchone() == (2,)
        assert len(store.records()) == 1
    assert recover(tmp_path) == 1
    with Store(tmp_path) as store:
        assert store._db.execute("SELECT count(*) FROM trainings NOT INDEXED").fetchone() == (1,)


def test_records_of_another_store_can_be_taken_over(tmp_path: Path) -> None:
    with Store(tmp_path / "here") as here, Store(tmp_path / "there") as there:
        save(here)
        save(there, other(1))
        there.save(other(2), "a", FACTS, {})
        there._db.execute("UPDATE trainings SET checksum = '' WHERE seed = 2")
        assert here.take_from(tmp_path / "there") == 1
        assert {r.training for r in here.records()} == {TRAINING, other(1)}
        np.testing.assert_array_equal(here.graphs(other(1)).id_mask, SCORES > 0)
        with pytest.raises(StoreError, match="does not exist"):
            here.take_from(tmp_path / "nowhere")


def test_a_store_of_a_newer_format_or_none_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        save(store)
        store._db.execute("PRAGMA user_version=99")
    with Store(tmp_path) as store:  # the tables are ours, so the number is damaged
        assert [r.training for r in store.records()] == [TRAINING]
        store._db.execute("PRAGMA user_version=99")
        store._db.execute("ALTER TABLE trainings ADD COLUMN more TEXT")
    with pytest.raises(StoreError, match="newer oddnode"):
        Store(tmp_path)
    assert recover(tmp_path) is None
    (tmp_path / "runs.sqlite").write_text("no database at all, but long enough to be looked at " * 40)
    with pytest.raises(StoreError, match="move it away"):
        Store(tmp_path)


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        save(store)
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match="full"):
            store.save(other(1), "a", FACTS, {"scores/msp/label": np.random.default_rng(0).normal(size=10_000)})
        assert [r.training for r in store.records()] == [TRAINING]


def test_a_claim_excludes_others_until_it_ends(tmp_path: Path) -> None:
    with Store(tmp_path) as first, Store(tmp_path) as second:
        with first.claim(TRAINING) as mine, second.claim(TRAINING) as theirs, second.claim(other(1)) as another:
            assert (mine, theirs, another) == (True, False, True)
        with second.claim(TRAINING) as theirs:
            assert theirs
            save(second)
        with first.claim(TRAINING) as mine:
            assert not mine  # it is done
    assert list((tmp_path / "locks").iterdir()) == []


@contextmanager
def claimed_by_another(folder: Path) -> Iterator[None]:
    """A process that has opened a store and claimed the training."""
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_claim_and_wait, args=(folder, there))
    process.start()
    assert here.recv() is True
    try:
        yield
    finally:
        process.kill()
        process.join()


def _claim_and_wait(folder: Path, ready: object) -> None:
    with Store(folder) as store, store.claim(TRAINING) as mine:
        ready.send(mine)  # type: ignore[attr-defined]
        ready.recv()  # type: ignore[attr-defined]


def test_a_damaged_file_that_is_open_is_left_alone_and_a_killed_process_claims_nothing(tmp_path: Path) -> None:
    with Store(tmp_path) as store, claimed_by_another(tmp_path), store.claim(TRAINING) as mine:
        assert not mine
    with claimed_by_another(tmp_path):
        (tmp_path / "runs.sqlite").write_bytes(os.urandom(5000))
        with pytest.raises(StoreError, match="another process has it open"):
            recover(tmp_path)
    assert recover(tmp_path) == 0  # a mark of a process that was killed does not count
    assert (tmp_path / "damaged-1.sqlite").exists()
    with Store(tmp_path) as store, store.claim(TRAINING) as mine:
        assert mine  # nor does its claim


def _die_while_writing(folder: Path) -> None:
    with Store(folder) as store, store._transaction():
        store._db.execute("INSERT INTO trainings SELECT 'x', code, task, protocol, backbone, seed, training, facts, "
                          "arrays, checksum FROM trainings")  # fmt: skip
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_killed_while_it_writes_leaves_nothing_behind(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        save(store)
    process = get_context("spawn").Process(target=_die_while_writing, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with Store(tmp_path) as store:
        assert store.finished() == {TRAINING.identity}
        save(store, other(1))
        assert store.damaged([TRAINING, other(1)]) == []
