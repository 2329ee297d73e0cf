"""Fitted detectors on the Hugging Face Hub: what is uploaded, its model card, and loading by the checked path.

The upload is always written from the detector, never copied from a folder, which may also contain column names,
labels, categories and hashes of the ids of a table.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from oddnode._utils.result_tables import escape_markdown, pipe_table
from oddnode._version import __version__
from oddnode.detector.fitted import as_scorer
from oddnode.detector.part_config import learnt_of
from oddnode.detector.recipes import RECIPES
from oddnode.detector.saved_files import FILES
from oddnode.detector.saving import save
from oddnode.nn import Ensemble

if TYPE_CHECKING:
    from oddnode.detector.detector import Detector


#: The name of the model card.
CARD = "README.md"

# Scorers keep vectors of single nodes of the training graph under this name.
_NODE_VECTORS = "bank_"


def upload(
    detector: Detector,
    repo_id: str,
    measured: Mapping[str, Any] | None,
    with_node_vectors: bool,
    private: bool,
    token: str | None,
) -> str:
    """Upload a fitted detector with its model card, and return the URL of the commit."""
    _check_node_vectors(detector, with_node_vectors)
    card = model_card(detector, repo_id, measured)
    api = _hub("push_to_hub").HfApi(token=token, library_name="oddnode", library_version=__version__)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        save(without_rows(detector), folder)
        (folder / CARD).write_text(card, encoding="utf-8")
        repo = api.create_repo(repo_id, private=private, exist_ok=True)
        uploaded = api.upload_folder(
            repo_id=repo.repo_id,
            folder_path=folder,
            allow_patterns=[*FILES, CARD],
            commit_message=f"A detector of oddnode {__version__}",
        )
    return str(uploaded.commit_url)


def without_rows(detector: Detector) -> Detector:
    """Copy a detector without its reference nodes: their indices, edges and checksums of features."""
    shared = copy.copy(detector)
    # Networks that were cross-fitted are an ensemble like any other once they have no reference nodes.
    shared.ensemble = len(detector.module_.members) if isinstance(detector.module_, Ensemble) else 1
    return shared._with_state(replace(detector.state_, references=(), training=None), detector.calibration_)


def model_card(detector: Detector, repo_id: str, measured: Mapping[str, Any] | None = None) -> str:
    """Describe a fitted detector for people: what it is, what was measured, how to load it, what the files hold."""
    rows = [[name, escape_markdown(text)] for name, text in _facts(detector).items()]
    numbers = {k: v for k, v in (measured or {}).items() if isinstance(v, (str, int, float))}
    shown = [
        [escape_markdown(k), escape_markdown(f"{v:.2f}" if isinstance(v, float) else str(v))]
        for k, v in numbers.items()
    ]
    return _CARD.format(
        repo=repo_id,
        facts=pipe_table(["", ""], rows),
        measured=pipe_table(["", ""], shown) if shown else "Nothing was measured for this card.",
        num_features=detector.n_features_in_,
        decision=_DECISION if detector.calibration_ is not None else "",
        vectors=_vectors_in_words(detector),
    )


_CARD = """---
library_name: oddnode
tags:
- graph-machine-learning
- out-of-distribution-detection
---

# {repo}

This detector tells which nodes of a graph its network does not know. It was made with oddnode.

{facts}

## Measured

{measured}

## Use

```python
from oddnode import Detector

detector = Detector.from_pretrained("{repo}")
scores = detector.score_samples(data)  # data: x, edge_index; higher = more like the training graph
{decision}```

`data.x` has the {num_features} features of the training graph, in the same order and on the same scale. On a graph of
another kind the scores mean little, and the false-alarm rate does not hold: calibrate on known nodes of that graph.

## What the files hold

Weights and statistics of the training graph; no ids, no table, and neither features nor edges as they were. {vectors}
As with any trained model, something of its training data may be read from it.
"""

_DECISION = "unknown = detector.detect(data)\n"


def _facts(detector: Detector) -> dict[str, str]:
    profile, calibration = detector.graph_profile_, detector.calibration_
    backbone = detector.backbone if isinstance(detector.backbone, str) else type(detector.backbone).__name__
    facts = {
        "method": _method(detector),
        "objective": repr(detector.objective) if detector.objective is not None else "not known",
        "scorer": repr(detector.state_.base_scorer),
        "network": f"{backbone}, {sum(p.numel() for p in detector.module_.parameters())} weights",
        "trained on": f"{profile.num_nodes} nodes, {profile.num_edges} edges, {detector.n_features_in_} features, "
        f"{detector.num_classes_} classes",
        "decisions": "not calibrated"
        if calibration is None
        else f"false-alarm rate {calibration.false_alarm_rate:g}, by {len(calibration.scores)} held-out known nodes",
        "oddnode": __version__,
    }
    return {name: text for name, text in facts.items() if text}


def _method(detector: Detector) -> str:
    """The name of the method with exactly these parts; empty if there is none."""
    parts = repr((detector.objective, as_scorer(detector.scorer)))
    for name, recipe in RECIPES.items():
        if parts == repr(recipe.build()) and detector.ensemble == recipe.settings.get("ensemble", 1):
            return name
    return ""


def _node_vectors(detector: Detector) -> dict[str, Tensor]:
    """Learnt tensors with rows for single nodes of the training graph, by path."""
    learnt = learnt_of(detector.scorer_)
    return {k: v for k, v in learnt if isinstance(v, Tensor) and k.endswith(f".{_NODE_VECTORS}")}


def _check_node_vectors(detector: Detector, allowed: bool) -> None:
    kept = _node_vectors(detector)
    if kept and not allowed:
        path, vectors = next(iter(kept.items()))
        raise ValueError(
            f"the scorer compares nodes with vectors of {len(vectors)} single training nodes ({path}), from which "
            "features could be read; upload them with with_node_vectors=True, or share a detector whose scorer keeps "
            "none, such as that of nodesafe"
        )


def _vectors_in_words(detector: Detector) -> str:
    kept = _node_vectors(detector)
    if not kept:
        return "Of single known nodes they hold scores and predicted classes, without ids."
    listed = ", ".join(f"`{path}` ({len(vectors)})" for path, vectors in kept.items())
    return f"They do hold vectors of single training nodes, without ids: {listed}. Features could be read from these."


def download(repo_id: str, revision: str | None, token: str | None) -> Path:
    """Download the files of a saved model into the cache of the Hub's library."""
    hub = _hub("from_pretrained")
    try:
        return Path(
            hub.snapshot_download(
                repo_id,
                revision=revision,
                token=token,
                allow_patterns=list(FILES),
                library_name="oddnode",
                library_version=__version__,
            )
        )
    except Exception as error:  # not the name of a repository, no network, no permission: classes of several packages
        lines = str(error).splitlines() or [type(error).__name__]
        raise OSError(
            f"{repo_id!r} is not a folder, and it could not be downloaded from the Hugging Face Hub: {lines[0]}"
        ) from error


def _hub(what: str) -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError(f"{what} needs huggingface_hub: pip install 'oddnode[hub]'") from None
    return huggingface_hub
