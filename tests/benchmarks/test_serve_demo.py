"""`make serve`: images arrive at a service, which ends with the program."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

pytest.importorskip("uvicorn", reason="SERVICE NOT TESTED: pip install 'oddnode[serve]'")
PROGRAM = Path(__file__).parents[2] / "benchmarks" / "serve_demo.py"


@pytest.mark.slow
def test_images_arrive_and_the_service_ends_with_the_program(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--seconds", "0", "--count", "3"]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", str(PROGRAM), str(tmp_path), *options], env={**os.environ}
    ) as program:
        arrivals: list[dict] = []
        end = time.monotonic() + 120
        while len(arrivals) < 3 and time.monotonic() < end and program.poll() is None:
            time.sleep(0.3)
            try:
                with urlopen(f"http://127.0.0.1:{port}/v1/arrivals", timeout=10) as answer:
                    arrivals = json.load(answer)["arrivals"]
            except OSError:
                continue
        program.terminate()
    assert len(arrivals) == 3
    assert all(each["answer"]["id"].startswith("image-") for each in arrivals)
    nodes, edges = ((tmp_path / f"try_{name}.csv").read_text().splitlines() for name in ("nodes", "edges"))
    assert len(nodes) == 13
    assert edges[0] == "source,target"
    with socket.socket() as other:
        assert other.connect_ex(("127.0.0.1", port)) != 0
