"""Building CSR tensors: torch's warning was swallowed at import, so that nobody filters warnings later."""

from __future__ import annotations

import subprocess
import sys


def test_no_warning_is_shown_and_the_filters_stay_as_they_are() -> None:
    code = """
import warnings
import torch
before = list(warnings.filters)
import oddnode.ops
from oddnode.ops import csr
torch_filters = [f for f in warnings.filters if f not in before]
warnings.simplefilter("error")
filters = list(warnings.filters)
index = torch.tensor([0, 1])
csr.from_coordinates(index, index, torch.ones(2), (2, 2))
csr.from_offsets(torch.tensor([0, 1, 2]), index, torch.ones(2), (2, 2))
assert list(warnings.filters) == filters
assert ("ignore", None, UserWarning, None, 0) not in torch_filters
print("quiet")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "quiet\n", done.stderr
    assert "beta" not in done.stderr
