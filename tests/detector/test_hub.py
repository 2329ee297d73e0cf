"""Detectors on the Hub, against a server on this machine that keeps every byte it is sent."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load as parse_tensors
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from oddnode import GCN, Detector, ModelFileError
from oddnode.detector import RECIPES
from oddnode.detector.hub import model_card, without_rows
from oddnode.detector.saving import tensors_of
from oddnode.evaluation import Result
from oddnode.tables import TableModel
from tests.fake_hub import COMMIT, FakeHub, fake_hub

REPO = "someone/detector"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """The library of the Hub, which talks to a server of ours and caches in a folder of this test."""
    with fake_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


@pytest.fixture
def fitted(two_groups: Data) -> Detector:
    two_groups.calibration_mask = two_groups.test_mask
    return Detector.from_recipe("nodesafe", epochs=5).fit(two_groups).calibrate(two_groups)


def test_what_was_pushed_is_loaded_and_scores_bit_for_bit(hub: FakeHub, fitted: Detector, two_groups: Data) -> None:
    address = fitted.push_to_hub(REPO)
    assert address == f"{hub.address}/{REPO}/commit/{COMMIT}"
    assert set(hub.files[REPO]) == {"config.json", "model.safetensors", "manifest.json", "README.md"}
    assert hub.created[0]["visibility"] == "private"
    loaded = Detector.from_pretrained(REPO)
    assert torch.equal(loaded.score_samples(two_groups), fitted.score_samples(two_groups))
    assert torch.equal(loaded.detect(two_groups), fitted.detect(two_groups))
    assert torch.equal(Detector.from_pretrained(REPO, revision=COMMIT).detect(two_groups), fitted.detect(two_groups))


def test_a_second_push_replaces_the_first(hub: FakeHub, fitted: Detector, two_groups: Data) -> None:
    fitted.push_to_hub(REPO)
    other = Detector.from_recipe("msp", epochs=5, seed=1).fit(two_groups)
    other.push_to_hub(REPO, private=False)
    loaded = Detector.from_pretrained(REPO)
    assert torch.equal(loaded.score_samples(two_groups), other.score_samples(two_groups))


def test_a_folder_is_loaded_without_the_hub(
    fitted: Detector, two_groups: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    fitted.save(tmp_path / "model")
    for name in (tmp_path / "model", str(tmp_path / "model")):
        loaded = Detector.from_pretrained(name)
        assert torch.equal(loaded.score_samples(two_groups), fitted.score_samples(two_groups))
    with pytest.raises(ValueError, match=r"revision is 'main', but .*model is a folder"):
        Detector.from_pretrained(tmp_path / "model", revision="main")
    with pytest.raises(ModelFileError, match="is not a folder with a saved model"):
        Detector.from_pretrained(tmp_path / "nothing")  # a path is never taken for a repository
    for use in (lambda: fitted.push_to_hub(REPO), lambda: Detector.from_pretrained(REPO)):
        with pytest.raises(ImportError, match=r"needs huggingface_hub: pip install 'oddnode\[hub\]'"):
            use()


def test_a_module_of_the_users_own_is_given_again(hub: FakeHub, two_groups: Data) -> None:
    detector = Detector.wrap(GCN(6, 8, 3), data=two_groups)
    detector.push_to_hub(REPO)
    with pytest.raises(ModelFileError, match="your own backbone 'GCN'"):
        Detector.from_pretrained(REPO)
    loaded = Detector.from_pretrained(REPO, backbone=GCN(6, 8, 3))
    assert torch.equal(loaded.score_samples(two_groups), detector.score_samples(two_groups))


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("a pickle was loaded",)


def test_what_somebody_changed_on_the_hub_is_refused(hub: FakeHub, fitted: Detector) -> None:
    fitted.push_to_hub(REPO)
    good = dict(hub.files[REPO])
    changes = (
        ("model.safetensors", good["model.safetensors"][:-1] + b"\x01"),
        ("model.safetensors", pickle.dumps(Harmful())),
        ("config.json", good["config.json"].replace(b'"seed": 0', b'"seed": 1')),
        ("manifest.json", b"{}"),
    )
    for number, (name, raw) in enumerate(changes):
        hub.files[f"someone/changed-{number}"] = good | {name: raw}
        with pytest.raises(ModelFileError, match=f"{name}.* (damaged|bytes)"):
            Detector.from_pretrained(f"someone/changed-{number}")
    hub.files["someone/partial"] = {name: raw for name, raw in good.items() if name != "manifest.json"}
    with pytest.raises(ModelFileError, match=r"manifest.json is missing"):
        Detector.from_pretrained("someone/partial")


def test_only_the_files_of_a_model_are_downloaded(hub: FakeHub, fitted: Detector, tmp_path: Path) -> None:
    fitted.push_to_hub(REPO)
    hub.files[REPO] |= {"pytorch_model.bin": pickle.dumps(Harmful()), "sitecustomize.py": b"raise SystemExit"}
    Detector.from_pretrained(REPO)
    names = {path.name for path in (tmp_path / "cache").rglob("snapshots/*/*")}
    assert names == {"config.json", "model.safetensors", "manifest.json"}


@pytest.mark.parametrize("name", ["someone/nothing", "not a repository", "a/b/c"])
def test_a_name_that_is_neither_folder_nor_repository(hub: FakeHub, name: str) -> None:
    with pytest.raises(OSError, match=f"'{name}' is not a folder, and it could not be downloaded"):
        Detector.from_pretrained(name)


TOWNS = ("Oberkirch", "Unterfeld", "Hinterwald")


def secret_tables() -> tuple[pa.Table, pa.Table]:
    """Two groups of people whose ids, towns, groups and column names would be recognised anywhere."""
    generator = torch.Generator().manual_seed(0)
    incomes, ages = (torch.randn(160, generator=generator).add(5).tolist() for _ in range(2))
    nodes = pa.table(
        {
            "passport": [f"person-{i:05d}-x" for i in range(160)],
            "guild": ["goldsmiths" if i % 2 else "chandlers" for i in range(160)],
            "yearly_income": [income + 3 * (i % 2) for i, income in enumerate(incomes)],
            "age_in_years": ages,
            "home_town": [TOWNS[i % 3] for i in range(160)],
        }
    )
    source = torch.arange(160).repeat_interleave(3)
    target = (source + 2 * torch.randint(1, 80, (480,), generator=generator)) % 160
    ids = nodes["passport"].to_pylist()
    edges = pa.table({"source": [ids[i] for i in source], "target": [ids[i] for i in target]})
    return nodes, edges


@pytest.fixture(scope="module")
def models() -> dict[str, TableModel]:
    settings: dict[str, Any] = {"id_column": "passport", "label_column": "guild", "false_alarm_rate": 0.1, "epochs": 5}
    return {
        method: TableModel.fit(*secret_tables(), **settings, method=method)[0]
        for method in ("nodesafe", "nodesafe-evidence")
    }


def secrets_of(model: TableModel) -> dict[str, bytes]:
    """Everything that may not leave, as the bytes that it would have in a file."""
    nodes, edges = secret_tables()
    used = model.used_rows
    assert used is not None
    found = {"key": used.key.hex().encode(), "key, raw": used.key}
    for name in ("train", "validation", "calibration", "references"):
        found[f"hashes, {name}"] = getattr(used, name)[:2].tobytes()
    for one in nodes["passport"].to_pylist():
        found[one] = one.encode()
        digest = hashlib.blake2b(one.encode(), digest_size=8, key=used.key).digest()
        found |= {f"hash of {one}": digest, f"hash of {one}, hexadecimal": digest.hex().encode()}
    for word in ("passport", "yearly_income", "age_in_years", "home_town", "goldsmiths", "chandlers", *TOWNS):
        found[word] = word.encode()
    for number, row in enumerate(model.read(nodes, edges).data.x):
        found |= {f"row {number}": row.numpy().tobytes(), f"row {number}, double": row.double().numpy().tobytes()}
    for network, reference in enumerate(model.detector.state_.references):
        for checksum in reference.checksums:
            found[f"checksum {float(checksum)}"] = checksum.numpy().tobytes()
        found[f"reference nodes {network}"] = reference.nodes.numpy().tobytes()
        for end, nodes_at_end in zip(("sources", "targets"), reference.edges, strict=True):
            found[f"{end} of edges {network}"] = nodes_at_end.numpy().tobytes()
    return found


def leaks(secrets: dict[str, bytes], files: list[bytes]) -> list[str]:
    return [what for what, raw in secrets.items() if any(raw in file for file in files)]


@pytest.mark.parametrize("method", ["nodesafe", "nodesafe-evidence"])
def test_no_byte_of_ids_hashes_or_tables_is_sent(
    hub: FakeHub, models: dict[str, TableModel], method: str, tmp_path: Path
) -> None:
    model = models[method]
    secrets = secrets_of(model)
    model.save(tmp_path / "model")
    kept = leaks(secrets, [path.read_bytes() for path in (tmp_path / "model").iterdir()])
    assert {"key", "hashes, train", "hashes, references", "passport", "Oberkirch", "goldsmiths"} <= set(kept)
    assert any(name.startswith("checksum") for name in kept) == bool(model.detector.state_.references)

    model.detector.push_to_hub(REPO, with_node_vectors=method == "nodesafe-evidence")
    assert leaks(secrets, [*hub.files[REPO].values(), *hub.bodies]) == []
    config, tensors = (hub.files[REPO][name] for name in ("config.json", "model.safetensors"))
    assert not [name for name in json.loads(config) if name.startswith("table")]
    assert not [name for name in parse_tensors(tensors) if name.startswith("reference.")]
    # The same for a detector that was loaded from the folder of the table model.
    Detector.load(tmp_path / "model").push_to_hub("someone/loaded", with_node_vectors=True)
    assert leaks(secrets, [*hub.files["someone/loaded"].values(), *hub.bodies]) == []


def test_a_detector_that_compared_with_reference_nodes_scores_other_graphs_as_before(
    hub: FakeHub, models: dict[str, TableModel]
) -> None:
    model = models["nodesafe-evidence"]
    assert model.detector.state_.references
    model.detector.push_to_hub(REPO, with_node_vectors=True)
    loaded = Detector.from_pretrained(REPO)
    assert not loaded.state_.references
    assert model.detector.state_.references  # the detector itself keeps them
    generator = torch.Generator().manual_seed(1)
    other = Data(
        x=torch.randn(30, model.detector.n_features_in_, generator=generator),
        edge_index=torch.randint(30, (2, 90), generator=generator),
    )
    assert torch.equal(loaded.score_samples(other), model.detector.score_samples(other))
    assert torch.equal(loaded.detect(other), model.detector.detect(other))


@pytest.mark.parametrize("method", ["knn", "nodesafe-evidence"])
def test_vectors_of_single_nodes_are_not_sent_unasked(
    hub: FakeHub, two_groups: Data, models: dict[str, TableModel], method: str
) -> None:
    fitted = {"nodesafe-evidence": models["nodesafe-evidence"].detector}
    detector = fitted.get(method) or Detector.from_recipe(method, epochs=5).fit(two_groups)
    with pytest.raises(ValueError, match=r"vectors of \d+ single training nodes .*bank_.* with_node_vectors=True"):
        detector.push_to_hub(REPO)
    assert hub.bodies == []
    detector.push_to_hub(REPO, with_node_vectors=True)
    assert "They do hold vectors of single training nodes" in hub.files[REPO]["README.md"].decode()


# The kinds of evidence of one method with evidence are those of all.
@pytest.mark.parametrize("method", [name for name in RECIPES if name not in ("evidence", "nodesafe-evidence")])
def test_no_other_tensor_has_a_row_for_every_node(two_groups: Data, method: str) -> None:
    """Whoever writes a scorer that keeps something of every node calls it ``bank_``, so that it is not sent unasked."""
    exposure = Data(x=two_groups.x + 1, edge_index=two_groups.edge_index)
    detector = Detector.from_recipe(method, epochs=2)
    detector.fit(two_groups, exposure if detector.needs_exposure else None)
    set_aside = [len(reference.nodes) for reference in detector.state_.references]
    num_train = int(two_groups.train_mask.sum())
    per_node = {60, num_train, *(60 - aside for aside in set_aside)}
    weights_and_scores = ("module.", "calibration.")
    for name, tensor in tensors_of(without_rows(detector)).items():
        if not name.startswith(weights_and_scores) and not name.endswith(".bank_"):
            assert not per_node & set(tensor.shape), name


def test_only_a_fitted_detector_is_pushed(hub: FakeHub) -> None:
    with pytest.raises(NotFittedError):
        Detector.from_recipe("nodesafe").push_to_hub(REPO)
    assert hub.bodies == []


def test_the_card_says_what_it_is_and_how_to_load_it(fitted: Detector, two_groups: Data) -> None:
    card = model_card(fitted, REPO)
    num_edges = int((two_groups.edge_index[0] != two_groups.edge_index[1]).sum())
    assert "| method | nodesafe |" in card
    assert f"60 nodes, {num_edges} edges, 6 features, 3 classes" in card
    assert "false-alarm rate 0.05, by 24 held-out known nodes" in card
    assert 'Detector.from_pretrained("someone/detector")' in card
    assert "unknown = detector.detect(data)" in card
    assert "Nothing was measured for this card." in card
    assert card.startswith("---\nlibrary_name: oddnode\n")


def test_the_card_has_the_measured_row(fitted: Detector) -> None:
    runs = [{"auroc": 91.257, "aupr": 50.0, "fpr95": 9.0, "id_acc": 80.0, "tests": {"label": {"auroc": 1.0}}}]
    row = Result("digits/label", "nodesafe", "clean", "gcn", runs).summary()
    card = model_card(fitted, REPO, row)
    assert "| task | digits/label |" in card
    assert "| auroc | 91.26 |" in card
    assert "| seeds | 1 |" in card
    assert "tests" not in model_card(fitted, REPO, runs[0])
    hostile = model_card(fitted, REPO, {"note": "a | b\n# heading <script>"})
    assert "\n# heading" not in hostile
    assert "<script>" not in hostile


def test_other_settings_have_no_name_of_a_method(two_groups: Data) -> None:
    detector = Detector.from_recipe("nodesafe", epochs=5, num_hops=3).fit(two_groups)
    card = model_card(detector, REPO)
    assert "| method |" not in card
    assert r"num\_hops=3" in card
    assert "not calibrated" in card
    assert "detector.detect" not in card
