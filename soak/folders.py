"""Graph folders that were changed: an error of oddnode, or the ids and scores of the folder as it was."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import torch

from oddnode import Detector
from oddnode.large import FolderBuilder, GraphFolder, NodeChunk, build_folder
from soak.bases import small_graph
from soak.trial import Family, Trial, described, is_ours

__all__ = ["Folders", "make_folder"]

_CLASSES: list[bool | int | str] = ["red", "grün", "blue"]


def make_folder(path: Path, seed: int = 0) -> GraphFolder:
    """Write the small graph as a folder with text ids and weights."""
    graph, rng = small_graph(seed), np.random.default_rng(seed)
    masks = {name: graph[name].numpy() for name in ("train_mask", "val_mask")}
    nodes = NodeChunk(graph.x.numpy(), graph.y.numpy(), np.array([f"ñ{n}" for n in range(60)]), masks)
    edges = graph.edge_index.numpy(), rng.random(graph.num_edges) + 0.1
    return build_folder(path, [nodes], [edges], classes=_CLASSES, made_from=f"graph {seed}")


def _flip(path: Path, rng: Random) -> None:
    raw = bytearray(path.read_bytes())
    if raw:
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)


def _harm(path: Path, rng: Random) -> None:
    """Shorten, lengthen, delete or replace a file."""
    raw = path.read_bytes()
    others = [other.read_bytes() for other in sorted(path.parent.glob("*.bin"))]
    content = rng.choice([raw[: len(raw) // 2], raw + b"\0", bytes(len(raw)), raw[::-1], rng.choice([raw, *others])])
    path.unlink()
    what = rng.randrange(9)
    if what == 0:
        path.mkdir()
    elif what == 1:
        os.mkfifo(path)
    elif what == 2:
        # Not to devices: whoever follows a link when writing, as root, replaces them.
        path.symlink_to(rng.choice(["/proc/self/pagemap", str(_bystander(path)), path.name]))
    elif what == 3:
        return
    else:
        path.write_bytes(content)


def _bystander(path: Path) -> Path:
    """A file beside the graph that nobody may change."""
    return next(each for each in path.parents if each.name == "graph").with_name("bystander.txt")


def _sign(folder: Path, manifest: dict[str, Any]) -> None:
    rest = json.dumps({name: value for name, value in manifest.items() if name != "sha256"})[1:]
    head = f'{{\n "sha256": "{hashlib.sha256(rest.encode()).hexdigest()}",\n'
    (folder / "graph.json").write_text(head + rest)


def _change_field(folder: Path, rng: Random) -> None:
    """Change a field of the manifest, with a checksum that fits."""
    manifest = json.loads((folder / "graph.json").read_text())
    at = rng.choice([manifest, manifest["arrays"], *manifest["arrays"].values()])
    name = rng.choice(sorted(at))
    odd: list[Any] = [-1, 0, 1, 2**31, 2**62, 1e300, None, "", "../x", "float64", "int32", "bool"]
    odd += [[], [60], [61], [60, 2], [2**40], {}]
    at[name] = rng.choice([*odd, rng.choice(list(at.values()))])
    if rng.random() < 0.2:
        del at[name]
    _sign(folder, manifest)


def _change_values(folder: Path, rng: Random) -> None:
    """Change values of an array, with checksums that fit."""
    manifest = json.loads((folder / "graph.json").read_text())
    name, entry = rng.choice(sorted(manifest["arrays"].items()))
    raw = bytearray((folder / f"{name}.bin").read_bytes())
    if not raw:
        return
    size = np.dtype(entry["dtype"]).itemsize
    for _ in range(rng.choice([1, 3])):
        place = rng.randrange(len(raw) // size) * size
        odd = [b"\xff" * size, bytes(size), rng.randbytes(size), (b"\0" * 7 + b"\x7f")[-size:], b"\1" + bytes(size - 1)]
        raw[place : place + size] = rng.choice(odd)
    (folder / f"{name}.bin").write_bytes(raw)
    entry["crc32"] = zlib.crc32(raw)
    _sign(folder, manifest)


_ODD: dict[str, list[Any]] = {
    "x": [np.eye(3) * 1j, np.array([["a"], ["b"], ["c"]]), np.full((3, 2), np.nan)],
    "y": [np.array([0, 1.7, 2]), np.array([0, 1, 2**64 - 1], np.uint64), np.array([True] * 3)],
    "ids": [np.array([1.0, 2, 3]), np.array([0, 1, 2**63], np.uint64), np.array(["a", None, 3])],
    "masks": [{"train_mask": np.ones(3)}, {"../../evil_mask": np.ones(3, bool)}, {"x": np.eye(3)}],
}


class Folders(Family):
    """Changes of finished and unfinished folders, and odd chunks."""

    name = "folders"
    quota = 4000
    kinds: ClassVar[tuple[str, ...]] = (
        *("flipped bit", "harmed file", "field, signed", "values, signed", "sidecars of another graph"),
        *("unfinished build", "odd chunks"),
    )
    limit = 30.0
    batch = 42

    def prepare(self, folder: Path) -> None:
        for seed in range(2):
            graph = make_folder(folder / f"graph-{seed}", seed)
            detector = Detector.from_recipe("nodesafe", epochs=3, hidden_channels=8, propagation="as-given").fit(graph)
            detector.save(folder / f"model-{seed}")
            detector.score_samples(graph)  # which writes sidecars

    def start(self, folder: Path) -> None:
        logging.getLogger("oddnode").setLevel(logging.CRITICAL)
        self.base, self.detector = folder, Detector.load(folder / "model-0")
        self.expected = self._use(folder / "graph-0")

    def trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        (work / "bystander.txt").write_text("as it was")
        for each in self._trial(kind, rng, work):
            is_same = (work / "bystander.txt").read_text() == "as it was"
            yield each if is_same else replace(each, violation="a file outside of the folder was changed")

    def _trial(self, kind: str, rng: Random, work: Path) -> Iterator[Trial]:
        if kind in ("unfinished build", "odd chunks"):
            yield Trial(kind, self._build(work, rng) if kind == "unfinished build" else self._odd(work, rng))
            return
        folder = shutil.copytree(self.base / "graph-0", work / "graph")
        files = sorted(path for path in folder.iterdir() if path.name != ".lock")
        if kind == "flipped bit":
            _flip(rng.choice(files), rng)
        elif kind == "harmed file":
            _harm(rng.choice(files), rng)
        elif kind == "field, signed":
            _change_field(folder, rng)
        elif kind == "values, signed":
            _change_values(folder, rng)
        else:  # as `cp new/* old/` does, where the new folder has no sidecars of its own
            listed = json.loads((folder / "sidecars.json").read_text())["arrays"]
            for name in ["sidecars.json", *(f"{name}.bin" for name in listed)]:
                shutil.copy(self.base / "graph-1" / name, folder)
        violation, accepted = self._judge(kind, folder)
        yield Trial(kind, violation, True, accepted)

    def _judge(self, kind: str, folder: Path) -> tuple[str | None, bool]:
        try:
            found = self._use(folder)
        except Exception as error:
            if kind.startswith("sidecars"):
                return f"sidecars did not heal: {described(error)}", False
            # Features that overflow are a ValueError of score_samples.
            sound = is_ours(error) or (kind == "values, signed" and type(error) is ValueError)
            return (None if sound else f"raised {described(error)}"), False
        if kind.endswith("signed"):
            return (None if bool(torch.isfinite(found[-1]).all()) else "scores are not finite"), True
        same = found[:-1] == self.expected[:-1] and torch.equal(found[-1], self.expected[-1])
        return (None if same else "another result without an error"), True

    def _use(self, path: Path) -> list[Any]:
        folder = GraphFolder(path)
        labels = [None if each is None else each.tolist() for each in (folder.y, folder.train_mask, folder.val_mask)]
        return [folder.ids().tolist(), *labels, folder.manifest.classes, self.detector.score_samples(folder)]

    def _build(self, work: Path, rng: Random) -> str | None:
        """A build that was interrupted, whose files are changed before it goes on."""
        stop = rng.choice(["buckets", "edges"])
        real = FolderBuilder._stage

        def interrupted(self: FolderBuilder, name: str, make: Callable[[], Any]) -> Any:
            if name == stop:
                raise KeyboardInterrupt
            return real(self, name, make)

        FolderBuilder._stage = interrupted  # type: ignore[method-assign]
        try:
            make_folder(work / "graph")
            return "it was not interrupted"
        except KeyboardInterrupt:
            pass
        finally:
            FolderBuilder._stage = real  # type: ignore[method-assign]
        files = sorted(path for path in (work / "graph" / ".building").rglob("*") if path.is_file())
        rng.choice([_flip, _harm])(rng.choice(files), rng)
        try:
            make_folder(work / "graph")
        except Exception as error:
            return None if is_ours(error) else f"raised {described(error)}"
        found = self._use(work / "graph")
        same = found[:-1] == self.expected[:-1] and torch.allclose(found[-1], self.expected[-1])
        return None if same else "the build went on with changed files"

    def _odd(self, work: Path, rng: Random) -> str | None:
        chunk: dict[str, Any] = {"x": np.eye(3), "y": np.arange(3), "ids": np.array(["a", "b", "c"]), "masks": {}}
        part = rng.choice(sorted(_ODD))
        chunk[part] = rng.choice(_ODD[part])
        try:
            build_folder(work / "graph", [NodeChunk(**chunk)], [np.array([[0, 1], [1, 2]])])
        except Exception as error:
            outside = [path.name for path in work.parent.rglob("*evil*")]
            return f"wrote {outside}" if outside else None if is_ours(error) else f"raised {described(error)}"
        return f"{part} of another type were converted"
