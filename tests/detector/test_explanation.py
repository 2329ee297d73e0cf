from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.functional import CalibrationError


@pytest.fixture
def fitted(two_groups: Data) -> Detector:
    return Detector.from_recipe("nodesafe", epochs=5, device="cpu").fit(two_groups)


@pytest.fixture
def with_evidence(two_groups: Data) -> Detector:
    detector = Detector.from_recipe("nodesafe-evidence", epochs=5, device="cpu").fit(two_groups)
    return detector.calibrate(two_groups, 0.3, two_groups.test_mask)


def test_the_flagged_nodes_have_reasons(with_evidence: Detector, two_groups: Data) -> None:
    flagged = with_evidence.detect(two_groups)
    texts = with_evidence.reasons(two_groups)
    assert len(texts) == int(flagged.sum()) > 0
    assert texts == with_evidence.reasons(two_groups, flagged)
    assert texts == with_evidence.reasons(two_groups, flagged.nonzero().squeeze(1))
    assert texts[::-1] == with_evidence.reasons(two_groups, flagged.nonzero().squeeze(1).flip(0).tolist())
    assert with_evidence.reasons(with_evidence.outputs(two_groups), []) == []


def test_sentences_read_as_sentences(with_evidence: Detector, two_groups: Data) -> None:
    for text in with_evidence.reasons(two_groups, range(two_groups.num_nodes)):
        assert re.fullmatch(r"([A-Z][^.]*(\.\d[^.]*)*\.)( [A-Z][^.]*(\.\d[^.]*)*\.)?", text), text


def test_evidence_is_saved_with_a_model(with_evidence: Detector, two_groups: Data, tmp_path: Path) -> None:
    with_evidence.save(tmp_path / "model")
    loaded = Detector.load(tmp_path / "model", device="cpu")
    assert loaded.reasons(two_groups) == with_evidence.reasons(two_groups)
    assert torch.equal(loaded.explain(two_groups).evidence, with_evidence.explain(two_groups).evidence)


def test_a_scorer_without_evidence_has_none_but_still_a_reason(fitted: Detector, two_groups: Data) -> None:
    found = fitted.explain(two_groups)
    assert (found.evidence.shape, found.kinds) == ((two_groups.num_nodes, 0), ())
    known = two_groups.test_mask
    fitted.calibrate(two_groups, 0.3, known)
    scores, own = fitted.score_samples(two_groups).double().numpy(), found.own_score.double().numpy()
    for node, text in enumerate(fitted.reasons(two_groups, range(two_groups.num_nodes))):
        share = np.mean(scores[known.numpy()] > scores[node])
        many = "all known nodes" if share == 1 else f"{np.floor(1000 * share + 1e-9) / 10:g} % of known nodes"
        effect = "lowers" if scores[node] < own[node] else "raises"
        assert text == (
            f"Its score is {scores[node]:.4g}, lower than that of {many}. Its own score is {own[node]:.4g}; its "
            f"neighbourhood {effect} it."
        )


def test_without_a_threshold_nodes_must_be_named(fitted: Detector, two_groups: Data) -> None:
    with pytest.raises(CalibrationError, match="no threshold yet"):
        fitted.reasons(two_groups)
    [text] = fitted.reasons(two_groups, [3])
    assert text.startswith(f"Its score is {float(fitted.score_samples(two_groups)[3]):.4g}. Its own score is ")


def test_features_far_beyond_training_are_the_reason(with_evidence: Detector, two_groups: Data) -> None:
    far = Data(x=two_groups.x.clone(), edge_index=two_groups.edge_index)
    far.x[5, 0] = 1e6 * two_groups.x.abs().max()
    before, text = with_evidence.reasons(far, [4, 5])
    assert text == "It has a feature of more than 100 times the largest magnitude in training."
    assert before != text


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0, 10**6], r"nodes has indices 0\.\.1000000, but the graph has only"),
        ([-1], r"nodes has indices -1\.\.-1"),
        (torch.tensor([True]), r"nodes is torch.bool of shape \[1\], expected indices \[n\], or a mask"),
        (torch.tensor([0.5]), r"nodes is torch.float32 of shape \[1\]"),
        (torch.tensor(3), r"nodes is torch.int64 of shape \[\]"),
    ],
)
def test_wrong_nodes_are_refused(fitted: Detector, two_groups: Data, nodes: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted.reasons(two_groups, nodes)  # type: ignore[arg-type]
