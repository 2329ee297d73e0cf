from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import oddnode
from oddnode.ops import Adam

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
on_a_gpu = pytest.param("cuda", True, marks=no_gpu)


def test_nothing_else_uses_torchs_optimisers() -> None:
    """Their `step` asks a GPU's driver, which fails in a forked process, even for parameters on a CPU."""
    source = Path(oddnode.__file__).parent
    torchs = re.compile(r"torch\.optim|from torch import .*optim")
    uses = [path for path in source.rglob("*.py") if torchs.search(path.read_text(encoding="utf-8"))]
    assert [path.relative_to(source).as_posix() for path in uses] == ["ops/optim.py"]


def test_sparse_gradients_are_explained() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="sparse=False"):
        Adam(list(table.parameters()), 0.1, 0.0).step()


@pytest.mark.parametrize(("device", "fused"), [("cpu", True), ("cpu", False), on_a_gpu])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_adam_is_torchs_bit_for_bit(device: str, fused: bool, dtype: torch.dtype, weight_decay: float) -> None:
    torch.manual_seed(0)
    values = [torch.randn(shape, dtype=dtype, device=device) for shape in ((3, 4), (5,), (), (16, 8))]
    ours, theirs = ([nn.Parameter(value.clone()) for value in values] for _ in range(2))
    ours[3].data = ours[3].data.t().contiguous().t()  # a weight may lie transposed
    memory = [parameter.data_ptr() for parameter in ours]
    torchs = torch.optim.Adam(theirs, lr=0.05, weight_decay=weight_decay, fused=fused or None)
    mine = Adam(ours, lr=0.05, weight_decay=weight_decay, fused=fused)
    for step in range(100):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = a.detach().sin() - torch.randn_like(a)
            b.grad = a.grad.clone(memory_format=torch.contiguous_format)
        if step == 3:
            ours[1].grad = theirs[1].grad = None
        mine.step()
        torchs.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert memory == [parameter.data_ptr() for parameter in ours]
    mine.zero_grad()
    assert all(parameter.grad is None for parameter in ours)
