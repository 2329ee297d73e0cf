"""The benchmarks are scripts; their folder is where they import each other from."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from memory_limit import MemoryGroup, NoMemoryGroup


@pytest.fixture
def cgroups() -> None:
    try:
        MemoryGroup(128 << 20).remove()
    except NoMemoryGroup as error:
        pytest.skip(f"MEMORY LIMIT NOT TESTED: {error}")
