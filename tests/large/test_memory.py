"""Building, fitting and scoring take less memory than the edges alone would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

RUN = """
import json, sys, threading, time
from pathlib import Path

import numpy as np
import torch

from oddnode import Detector
from oddnode.large import GraphFolder, NodeChunk, build_folder

N, E, PART = 200_000, 8_000_000, 250_000


def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def nodes():
    for start in range(0, N, 20_000):
        rng = np.random.default_rng(start)
        y = rng.integers(3, size=20_000)
        x = (rng.standard_normal((20_000, 16)) + y[:, None]).astype(np.float32)
        role = np.arange(start, start + 20_000) % 400
        yield NodeChunk(x, y, masks={"train_mask": role == 0, "val_mask": role == 1, "calibration_mask": role == 2})


def edges():
    for start in range(0, E, PART):
        rng = np.random.default_rng(start)
        ends = rng.integers(N, size=(2, PART))
        yield (ends, rng.random(PART)) if sys.argv[2] == "weighted" else ends


warm = Detector.from_recipe("nodesafe", epochs=1, device="cpu")  # what is imported later is no part of the graph
before, peak, running = anonymous(), [0], True


def watch():
    while running:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)


thread = threading.Thread(target=watch)
thread.start()
folder = build_folder(sys.argv[1], nodes(), edges())
detector = Detector.from_recipe("nodesafe", epochs=3, num_hops=4, device="cpu").fit(folder).calibrate(folder)
scores = detector.score_samples(GraphFolder(sys.argv[1]))
running = False
thread.join()
edge_bytes = 20 if sys.argv[2] == "weighted" else 16  # of an edge_index, and of weights in single precision
print(json.dumps({"grown": peak[0] - before, "edges": edge_bytes * E, "finite": bool(scores.isfinite().all())}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "weighted"])
def test_the_edges_are_never_in_memory(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", RUN, str(tmp_path / "graph"), kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    found = json.loads(done.stdout)
    assert found["finite"]
    assert found["grown"] < found["edges"], found
