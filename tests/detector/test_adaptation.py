"""What a detector takes from its graph."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from oddnode import Detector
from oddnode.detector.adaptation import labelled_nodes


def test_labelled_nodes_are_those_of_both_masks(two_groups: Data) -> None:
    found = labelled_nodes(two_groups, torch.device("cpu"))
    assert found is not None
    assert found.tolist() == [node for node in range(60) if node % 20 < 12]


@pytest.mark.parametrize("form", ["meta", "sparse", "numbers", "too short"])
def test_what_is_no_mask_is_ignored_when_scoring(two_groups: Data, form: str) -> None:
    detector = Detector("gcn", epochs=1).fit(two_groups)
    wanted = detector.score_samples(two_groups)
    mask = two_groups.train_mask
    odd = {"meta": mask.to("meta"), "sparse": mask.to_sparse(), "numbers": mask.float(), "too short": mask[1:]}
    two_groups.train_mask = odd[form]
    assert torch.equal(detector.score_samples(two_groups), wanted)
    found = labelled_nodes(two_groups, torch.device("cpu"))
    assert found is not None
    assert found.tolist() == two_groups.val_mask.nonzero().squeeze(1).tolist()
