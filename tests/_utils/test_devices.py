from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oddnode._utils.devices import is_gpu, processes_share_gpu, resolve_device


@pytest.mark.parametrize("has_cuda", [True, False])
def test_auto_is_a_gpu_where_there_is_one_and_names_stand(monkeypatch: pytest.MonkeyPatch, has_cuda: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert resolve_device("auto").type == ("cuda" if has_cuda else "cpu")
    assert is_gpu("auto") is has_cuda
    assert is_gpu("cuda:1")  # of another machine, if this one has none
    assert not is_gpu("cpu")
    if has_cuda:
        assert resolve_device("cuda:1") == torch.device("cuda", 1)
    else:
        with pytest.raises(ValueError, match="device is cuda:1, but torch finds no CUDA GPU; use cpu or auto"):
            resolve_device("cuda:1")
    for ask in (resolve_device, is_gpu):
        with pytest.raises(ValueError, match="unknown device 'gpu'; expected auto, cpu or cuda"):
            ask("gpu")


def test_the_multi_process_service_is_found_by_its_pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not processes_share_gpu()
    (tmp_path / "control").touch()
    assert processes_share_gpu()
