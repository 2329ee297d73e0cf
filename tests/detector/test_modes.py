"""Detectors work, and give the same numbers, under every mode that a caller may have set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from oddnode import ODIN, RECIPES, Detector, Mahalanobis


@contextmanager
def double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no_grad": torch.no_grad,
    "grad disabled": lambda: torch.set_grad_enabled(False),
    "inference_mode": torch.inference_mode,
    "double by default": double_by_default,
}


def fitted(method: str, data: Data) -> Detector:
    detector = Detector.from_recipe(method, epochs=3, device="cpu")
    exposure = Data(x=data.x.flip(0), edge_index=data.edge_index) if detector.needs_exposure else None
    return detector.fit(data, exposure)


def results(detector: Detector, data: Data) -> list[Tensor]:
    detector.calibrate(data, 0.1, data.test_mask)
    return [
        detector.score_samples(data),
        detector.predict_proba(data),
        detector.p_values(data),
        *detector.explain(data)[:5],
    ]


def state() -> tuple[object, ...]:
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()


@pytest.mark.parametrize("method", list(RECIPES))
def test_fitting_loading_and_scoring_do_not_depend_on_the_callers_modes(
    method: str, two_groups: Data, tmp_path: Path
) -> None:
    plain = fitted(method, two_groups)
    plain.save(tmp_path / "model")
    expected = results(plain, two_groups)
    for name, mode in MODES.items():
        with mode():
            before = state()
            detectors = fitted(method, two_groups), Detector.load(tmp_path / "model", device="cpu"), plain
            found = [results(detector, two_groups) for detector in detectors]
            assert state() == before
        for each in found:
            for ours, theirs in zip(each, expected, strict=True):
                assert ours.dtype == theirs.dtype
                assert torch.equal(ours, theirs), f"{method} under {name}"


def test_data_that_was_made_in_inference_mode_can_be_trained_on(two_groups: Data) -> None:
    expected = fitted("nodesafe", two_groups).score_samples(two_groups)
    with torch.inference_mode():
        data = two_groups.clone()
        assert data.x.is_inference()
        found = fitted("nodesafe", data).score_samples(data)
    assert torch.equal(found, expected)
    assert torch.equal(fitted("nodesafe", data).score_samples(data), expected)


def test_a_network_is_wrapped_and_gets_another_scorer_in_inference_mode(two_groups: Data) -> None:
    net = fitted("nodesafe", two_groups).module_
    expected = [Detector.wrap(net, scorer, two_groups).score_samples(two_groups) for scorer in (ODIN(), Mahalanobis())]
    with torch.inference_mode():
        detector = Detector.wrap(net, ODIN(), two_groups)
        found = [detector.score_samples(two_groups), detector.with_scorer(Mahalanobis()).score_samples(two_groups)]
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.equal(ours, theirs)
