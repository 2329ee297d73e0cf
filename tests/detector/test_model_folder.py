from __future__ import annotations

import copy
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_geometric.data import Data

from oddnode import CalibrationError, CrossEntropy, Detector, Energy, MaxSoftmax, ModelFileError, Propagated, load_task
from oddnode._utils import atomic_files
from oddnode.detector import RECIPES, check_target, load, read_config, save, saving
from oddnode.detector.recipes import Settings
from oddnode.objectives import Term, TrainingPass
from oddnode.protocols.published_terms import AllLogitsEnergy
from oddnode.scoring import Outputs, Scorer
from oddnode.tables import TableModel
from tests.saved_models import rewrite, sign


@pytest.fixture(scope="module")
def graph() -> Data:
    return load_task("digits/label").train


@pytest.fixture(scope="module")
def fitted(graph: Data) -> Detector:
    detector = Detector.from_recipe("nodesafe", epochs=5, hidden_channels=4).fit(graph)
    return detector.calibrate(graph, 0.05, graph.test_mask)


@pytest.fixture
def folder(fitted: Detector, tmp_path: Path) -> Path:
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_loaded_detector_scores_and_decides_as_before(fitted: Detector, folder: Path, graph: Data) -> None:
    loaded = Detector.load(folder)
    assert torch.equal(loaded.score_samples(graph), fitted.score_samples(graph))
    assert torch.equal(loaded.detect(graph), fitted.detect(graph))
    assert torch.equal(loaded.p_values(graph, per_class=True), fitted.p_values(graph, per_class=True))
    assert torch.equal(loaded.explain(graph).nearest_class, fitted.explain(graph).nearest_class)
    assert repr(loaded.objective) == repr(fitted.objective)
    assert loaded.graph_profile_ == fitted.graph_profile_
    assert loaded.get_params()["epochs"] == 5


@pytest.mark.parametrize("name", RECIPES)
def test_every_method_survives(name: str, graph: Data, tmp_path: Path) -> None:
    detector = Detector.from_recipe(name, epochs=2, hidden_channels=4)
    detector.fit(graph, load_task("digits/label").exposure if detector.needs_exposure else None).save(tmp_path / "m")
    loaded = Detector.load(tmp_path / "m")
    assert torch.equal(loaded.score_samples(graph), detector.score_samples(graph))
    assert repr(loaded.objective) == repr(detector.objective)


def test_a_part_of_the_published_protocol_loads_in_a_fresh_process(graph: Data, tmp_path: Path) -> None:
    detector = Detector(scorer=AllLogitsEnergy(), epochs=2).fit(graph)
    detector.save(tmp_path / "m")
    code = f"from oddnode import Detector; print(Detector.load({str(tmp_path / 'm')!r}).scorer)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(detector.scorer)


def test_double_precision_survives(graph: Data, tmp_path: Path) -> None:
    data = copy.copy(graph)
    data.x = data.x.double()
    detector = Detector(epochs=2).fit(data)
    detector.save(tmp_path / "m")
    scores = Detector.load(tmp_path / "m").score_samples(data)
    assert scores.dtype == torch.float64
    assert torch.equal(scores, detector.score_samples(data))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_model_moves_between_cpu_and_gpu(folder: Path, graph: Data, tmp_path: Path) -> None:
    on_cpu, on_gpu = Detector.load(folder, device="cpu"), Detector.load(folder, device="cuda")
    assert next(on_gpu.module_.parameters()).is_cuda
    assert torch.allclose(on_gpu.score_samples(graph).cpu(), on_cpu.score_samples(graph), atol=1e-4)
    on_gpu.save(tmp_path / "back")
    back = Detector.load(tmp_path / "back", device="cpu")
    assert torch.equal(back.score_samples(graph), on_cpu.score_samples(graph))


def test_the_config_can_be_read_by_a_human(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["scorer"] == {
        "class": "Propagated",
        "scorer": {"class": "Energy", "centred": True},
        "num_hops": 32,
        "eta": 0.1,
        "isolated": "keep",
        "prior_nodes": 10.0,
    }
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "manifest.json", "model.safetensors"]


def test_an_unfitted_detector_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not fitted yet"):
        Detector().save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


class Net(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, width), nn.BatchNorm1d(width), nn.Linear(width, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu())


def test_an_own_module_gets_its_weights_back(graph: Data, tmp_path: Path) -> None:
    detector = Detector(Net(), epochs=2).fit(graph)
    detector.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"your own backbone 'Net'.*Detector.load\(..., backbone=...\)"):
        Detector.load(tmp_path / "m")
    fresh = Net()
    before = copy.deepcopy(fresh.state_dict())
    loaded = Detector.load(tmp_path / "m", backbone=fresh)
    assert torch.equal(loaded.score_samples(graph), detector.score_samples(graph))
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())
    with pytest.raises(ModelFileError, match=r"'module.* is torch.float32 of shape"):
        Detector.load(tmp_path / "m", backbone=Net(width=9))


def test_a_module_for_a_model_of_the_librarys_own_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="backbone was given, but the saved model has its own: 'gcn'"):
        Detector.load(folder, backbone=Net())


@dataclass
class FirstLogit(Scorer):
    def score(self, outputs: Outputs) -> Tensor:
        return outputs.logits[:, 0]


@dataclass(frozen=True, repr=False)
class Nothing(Term):
    def __call__(self, step: TrainingPass) -> Tensor:
        return 0.0 * step.logits.sum()


@pytest.mark.parametrize("inside", [False, True])
def test_an_own_scorer_and_objective_are_given_again(graph: Data, tmp_path: Path, inside: bool) -> None:
    objective = CrossEntropy() + 0.1 * Nothing() if inside else Nothing()
    scorer = Propagated(FirstLogit(), 2) if inside else FirstLogit()
    detector = Detector(objective=objective, scorer=scorer, epochs=2).fit(graph)
    detector.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"your own objective .*Nothing"):
        Detector.load(tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"your own scorer .*FirstLogit"):
        Detector.load(tmp_path / "m", objective=objective)
    loaded = Detector.load(tmp_path / "m", objective=objective, scorer=scorer)
    assert torch.equal(loaded.score_samples(graph), detector.score_samples(graph))


class Margin(Scorer):
    """A scorer from outside that is no dataclass."""

    def __init__(self, scale: float = 1.0):
        self.scale = scale

    def score(self, outputs: Outputs) -> Tensor:
        first, second = outputs.logits.topk(2, dim=1).values.unbind(dim=1)
        return self.scale * (first - second)


def test_the_same_scorer_keeps_its_threshold_and_another_one_has_none(graph: Data, tmp_path: Path) -> None:
    detector = Detector(scorer=Propagated(Margin(2.0), num_hops=3), epochs=2).fit(graph)
    detector.calibrate(graph, 0.05, graph.test_mask).save(tmp_path / "m")
    same = Detector.load(tmp_path / "m", scorer=Propagated(Margin(2.0), num_hops=3))
    assert same.threshold_ == detector.threshold_
    assert torch.equal(same.detect(graph), detector.detect(graph))
    others = Propagated(Margin(1.0), num_hops=3), Propagated(Margin(2.0)), Margin(2.0), MaxSoftmax(), "energy"
    for other in others:
        loaded = Detector.load(tmp_path / "m", scorer=other)
        expected = detector.with_scorer(other)
        assert torch.equal(loaded.score_samples(graph), expected.score_samples(graph))
        assert not hasattr(loaded, "threshold_")
        for decide in (loaded.detect, loaded.p_values, loaded.flag):
            with pytest.raises(CalibrationError, match=r"belongs to its scorer .*Margin.* another one: call calibrate"):
                decide(graph)
        loaded.calibrate(graph, 0.05, graph.test_mask)
        assert loaded.threshold_ == expected.calibrate(graph, 0.05, graph.test_mask).threshold_


def test_another_scorer_takes_nothing_that_the_saved_one_has_learnt(graph: Data, tmp_path: Path) -> None:
    Detector(scorer=Propagated(Distance(1.5), num_hops=2), epochs=2).fit(graph).save(tmp_path / "m")
    assert not vars(Detector.load(tmp_path / "m", scorer=Margin()).scorer_).keys() & {"mean_", "count_"}
    with pytest.raises(ValueError, match=r"Distance learns from the training graph, .* loaded from files"):
        Detector.load(tmp_path / "m", scorer=Distance(1.5))


def test_a_loaded_detector_takes_scorers_that_learn_nothing_and_says_why_not_others(folder: Path, graph: Data) -> None:
    class Learns(Scorer):
        def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
            self.mean_ = outputs.logits[train].mean()
            return self

    loaded = Detector.load(folder)
    assert loaded.with_scorer(Propagated(MaxSoftmax())).score_samples(graph).shape == (graph.num_nodes,)
    with pytest.raises(ValueError, match=r"Learns learns from the training graph, .* loaded from files.* fit a new"):
        loaded.with_scorer(Learns())


@dataclass
class Distance(Scorer):
    """A scorer from outside: minus the distance to the mean logits of the training nodes."""

    power: float = 2.0
    mean_: Tensor = field(init=False, repr=False, compare=False)
    count_: int = field(init=False, repr=False, compare=False)

    def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Distance:
        fitted = copy.copy(self)
        fitted.mean_ = outputs.logits[train].mean(dim=0)
        fitted.count_ = len(train)
        return fitted

    def score(self, outputs: Outputs) -> Tensor:
        return -(outputs.logits - self.mean_).norm(dim=1).pow(self.power) / self.count_


@pytest.mark.parametrize("ensemble", [1, 2])
def test_what_an_own_scorer_learns_is_saved(graph: Data, tmp_path: Path, ensemble: int) -> None:
    scorer = Propagated(Distance(1.5), num_hops=2)
    detector = Detector(scorer=scorer, epochs=2, ensemble=ensemble).fit(graph)
    detector.save(tmp_path / "m")
    member = "scorers.0." if ensemble > 1 else ""
    assert f"scorer.{member}scorer.mean_" in load_file(tmp_path / "m" / "model.safetensors")
    learnt = json.loads((tmp_path / "m" / "config.json").read_text())["learnt"]
    assert learnt[f"scorer.{member}scorer.count_"] == int(graph.train_mask.sum())
    loaded = Detector.load(tmp_path / "m", scorer=scorer)
    assert torch.equal(loaded.score_samples(graph), detector.score_samples(graph))
    assert not hasattr(scorer.scorer, "mean_")


def test_a_scorer_that_learns_what_cannot_be_saved_is_named(graph: Data, tmp_path: Path) -> None:
    class LearnsAList(FirstLogit):
        def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> LearnsAList:
            fitted = copy.copy(self)
            fitted.seen_ = train.tolist()  # type: ignore[attr-defined]
            return fitted

    with pytest.raises(TypeError, match=r"scorer\.seen_ is a list, which cannot be saved"):
        Detector(scorer=LearnsAList(), epochs=2).fit(graph).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mean", "_mean", "scale"])  # new ones, and a setting
@pytest.mark.parametrize("ensemble", [1, 2])
def test_what_a_scorer_learns_under_a_name_that_is_not_saved_is_named(
    graph: Data, tmp_path: Path, name: str, ensemble: int
) -> None:
    class Unnamed(Margin):
        def fit(self, outputs: Outputs, train: Tensor, y: Tensor) -> Scorer:
            fitted, mean = copy.copy(self), outputs.logits[train].mean()
            setattr(fitted, name, float(mean) if name == "scale" else mean)
            return fitted

    detector = Detector(scorer=Propagated(Unnamed()), ensemble=ensemble, epochs=1, device="cpu").fit(graph)
    with pytest.raises(TypeError, match=f"Unnamed.fit has set '{name}', which would not be saved; call it '{name}_'"):
        detector.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_plugins_part_is_saved_under_the_plugins_name(
    graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oddnode.detector.part_config.plugin_of", lambda kind: "far" if kind is Distance else None)
    detector = Detector(scorer=Propagated(Distance(1.5), num_hops=2), epochs=2).fit(graph)
    detector.save(tmp_path / "m")
    inner = json.loads((tmp_path / "m" / "config.json").read_text())["scorer"]["scorer"]
    assert inner == {"class": "Distance", "plugin": "far", "power": 1.5}
    loaded = Detector.load(tmp_path / "m")
    assert torch.equal(loaded.score_samples(graph), detector.score_samples(graph))
    monkeypatch.setattr("oddnode.detector.part_config.plugin_of", lambda kind: None)
    with pytest.raises(
        ModelFileError, match=r"'Distance' of the plugin 'far', which is not loaded .* install that plugin"
    ):
        Detector.load(tmp_path / "m")


def test_two_classes_of_one_name_in_a_plugin_are_refused(
    graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin: Any = dataclass(type("Distance", (Distance,), {}))
    monkeypatch.setattr(
        "oddnode.detector.part_config.plugin_of", lambda kind: "far" if kind in (Distance, twin) else None
    )
    with pytest.raises(ModelFileError, match="'far' defines more than once"):
        Detector(scorer=Distance(), epochs=2).fit(graph).save(tmp_path / "m")


def test_an_own_class_with_a_librarys_name_does_not_pass_for_it(graph: Data, tmp_path: Path) -> None:
    own: Any = dataclass(type("Energy", (FirstLogit,), {}))
    Detector(scorer=own(), epochs=2).fit(graph).save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="your own scorer"):
        Detector.load(tmp_path / "m")


def test_every_setting_of_a_detector_is_saved_but_for_its_parts_device_and_trainer() -> None:
    apart = {"backbone", "objective", "scorer", "device", "trainer"}
    assert set(Settings.__struct_fields__) == set(Detector().get_params()) - apart


def test_saving_again_replaces_the_model(fitted: Detector, folder: Path, graph: Data) -> None:
    other = fitted.with_scorer(Energy())
    other.save(folder)
    assert torch.equal(Detector.load(folder).score_samples(graph), other.score_samples(graph))
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_a_folder_with_other_files_is_not_replaced(fitted: Detector, folder: Path, tmp_path: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"has other files \(notes.txt\)"):
        fitted.save(folder)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.json").write_text("{}")
    with pytest.raises(FileExistsError, match="not a saved model"):
        fitted.save(foreign)
    assert (foreign / "config.json").read_text() == "{}"
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match="is a file"):
        fitted.save(tmp_path / "file")


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_failed_save_keeps_the_old_model(
    fitted: Detector, folder: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def fail(*_: Any, **__: Any) -> int:
        raise failure

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(type(failure)):
        fitted.with_scorer(Energy()).save(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_no_permission_is_one_clear_line(fitted: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("os.mkdir", refuse)
        with pytest.raises(PermissionError, match="no permission to write into"):
            fitted.save(tmp_path / "m")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="no permission to write into"):
        fitted.save(tmp_path / "new" / "m")
    assert not list(tmp_path.iterdir())


def test_a_name_too_long_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="its name has 250 bytes, expected at most"):
        check_target(tmp_path / ("m" * 250))


def test_a_model_that_a_killed_process_moved_aside_is_found(fitted: Detector, folder: Path, graph: Data) -> None:
    """Where folders cannot be exchanged, a process may be killed when the old model is aside and the new not there."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    aside = folder.with_name(f".model.oddnode-{atomic_files._machine()}-{process.pid}-01234567.old")
    folder.rename(aside)
    assert torch.equal(Detector.load(folder).score_samples(graph), fitted.score_samples(graph))
    folder.rename(aside)
    check_target(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_model_that_cannot_be_put_back_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oddnode._utils.atomic_files._PAUSE", 0)
    aside = folder.with_name(f".model.oddnode-{atomic_files._machine()}-{os.getpid()}-01234567.old")
    folder.rename(aside)
    with pytest.raises(ModelFileError, match=f"has left it as .*{aside.name}, move it back"):
        Detector.load(folder)


def test_a_file_in_the_way_is_named(fitted: Detector, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="file is not a folder"):
        fitted.save(tmp_path / "file" / "m")


def rewrite_tensors(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    sign(folder)


def rewrite_header(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the header of the tensors, but not their numbers."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    sign(folder)


CONFIG_ATTACKS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a list": (lambda c: [], "not the config of a saved oddnode detector"),
    "another format": (lambda c: c.update(format="pickle"), "not the config"),
    "a later version": (lambda c: c.update(format_version=5), "format version 5 .* reads version 4; load it with"),
    "an earlier version": (lambda c: c.update(format_version=1), "format version 1 .* fit the model again .* and save"),
    "a version that is true": (lambda c: c.update(format_version=True), "format version True"),
    "a foreign class": (
        lambda c: c.update(scorer={"class": "os.system"}),
        "scorer.class is 'os.system', expected one of",
    ),
    "an objective as scorer": (lambda c: c.update(scorer={"class": "CrossEntropy"}), "expected one of"),
    "a base class": (lambda c: c.update(scorer={"class": "Scorer"}), "expected one of"),
    "a class that is a list": (lambda c: c.update(scorer={"class": []}), "expected one of"),
    "an unknown field": (lambda c: c["scorer"].update(x=1), "unknown field `x`"),
    "hops of text": (lambda c: c["scorer"].update(num_hops="many"), "scorer.num_hops is 'many': expected `int"),
    "a thousand million hops": (
        lambda c: c["scorer"].update(num_hops=10**9),
        "num_hops is 1000000000: expected .* <= 10000",
    ),
    "negative hops": (lambda c: c["scorer"].update(num_hops=-1), "do not work together"),
    "eta beyond one": (lambda c: c["scorer"].update(eta=7.0), "do not work together"),
    "a learnt method": (lambda c: c["learnt"].update({"scorer.score": 1}), "'scorer.score' is not a learnt"),
    "a learnt dunder": (lambda c: c["learnt"].update({"scorer.__class__": 1}), "is not a learnt value"),
    "something learnt elsewhere": (lambda c: c["learnt"].update({"module": 1}), "'module' is not a learnt value"),
    "a learnt list": (lambda c: c["learnt"].update({"scorer.x_": [1]}), r"learnt\[...\] is .*: expected `bool"),
    "an inner field of text": (
        lambda c: c["scorer"]["scorer"].update(centred="x"),
        "scorer.scorer.centred is 'x': expected `bool",
    ),
    "an inner foreign class": (
        lambda c: c["objective"]["parts"][0].__setitem__(1, {"class": "eval"}),
        r"objective.parts\[0\]\[1\].class is 'eval', expected one of",
    ),
    "a plugin that is not here": (
        lambda c: c.update(scorer={"class": "Odd", "plugin": "odd_plugin"}),
        "scorer.class is 'Odd' of the plugin 'odd_plugin', which is not loaded",
    ),
    "a backbone of a plugin": (
        lambda c: c.update(backbone={"name": "odd", "plugin": "odd_plugin"}),
        "backbone is 'odd' of the plugin 'odd_plugin'",
    ),
    "another isolated": (lambda c: c["scorer"].update(isolated="x"), "isolated is 'x': expected one of 'keep'"),
    "an unknown backbone": (lambda c: c.update(backbone="../../gcn"), "backbone is '../../gcn', expected one of gcn"),
    "a backbone of lists": (lambda c: c.update(backbone=[1]), "backbone is"),
    "huge layers": (lambda c: c["settings"].update(hidden_channels=2**30), "'module.* is torch.float32"),
    "huge numbers": (lambda c: c["settings"].update(hidden_channels=10**40), "hidden_channels is 1000"),
    "many layers": (lambda c: c["settings"].update(num_layers=10**9), "num_layers is 1000000000"),
    "no layers": (lambda c: c["settings"].update(num_layers=0), "cannot be built from these settings|num_layers"),
    "an unknown setting": (lambda c: c["settings"].update(hook="x"), "settings: object contains unknown field `hook`"),
    "a device": (lambda c: c["settings"].update(device="cuda:7"), "settings: object contains unknown field `device`"),
    "no settings": (lambda c: c.pop("settings") and None, "missing required field `settings`"),
    "many classes": (lambda c: c.update(num_classes=2**31), "'module.* is torch.float32"),
    "no class": (lambda c: c.update(num_classes=0), "num_classes is 0"),
    "fewer classes": (lambda c: c.update(num_classes=4), "'module.* is torch.float32"),
    "many features": (lambda c: c.update(num_features=2**31), "'module.* is torch.float32"),
    "an odd dtype": (lambda c: c.update(dtype="object"), "dtype is 'object'"),
    "a rate of 2": (lambda c: c["calibration"].update(false_alarm_rate=2), "calibration: .*between 0 and 1"),
    "a tiny rate": (lambda c: c["calibration"].update(false_alarm_rate=1e-9), "needs at least"),
    "a rate next to nothing": (lambda c: c["calibration"].update(false_alarm_rate=1e-320), "calibration: "),
    "no calibration": (lambda c: c.update(calibration=None), "belongs to no part"),
    "another rate": (lambda c: c["calibration"].update(false_alarm_rate=0.85), "scores give the threshold"),
    "another number of scores": (
        lambda c: c["calibration"].update(num_nodes=3),
        r"calibration.scores.* expected .*\[3\]",
    ),
    "an endless eta": (lambda c: c["scorer"].update(eta=10**400), "scorer.*(1e|too large|1000)"),
    "an endless dropout": (lambda c: c["settings"].update(dropout=10**400), "too large|1000"),
    "an endless degree": (lambda c: c["graph"].update(mean_degree=10**400), "too large|1000"),
    "an endless rate": (lambda c: c["calibration"].update(false_alarm_rate=10**400), "too large|1000"),
    "a graph of text": (lambda c: c["graph"].update(num_nodes="x"), "graph.num_nodes"),
    "half of a surrogate pair": (lambda c: c.update(oddnode_version="\ud800"), "is damaged: .*surrogates not allowed"),
    "advice of numbers": (lambda c: c.update(advice=[1]), r"advice\[0\] is 1: expected `str`"),
}


@pytest.mark.parametrize("attack", CONFIG_ATTACKS)
def test_hostile_configs_are_refused(folder: Path, attack: str) -> None:
    change, message = CONFIG_ATTACKS[attack]
    rewrite(folder, change)
    with pytest.raises(ModelFileError, match=message):
        Detector.load(folder)


def test_nested_scorers_have_an_end(folder: Path) -> None:
    def nest(config: dict[str, Any]) -> None:
        for _ in range(50):
            config["scorer"] = config["scorer"] | {"scorer": config["scorer"]}

    rewrite(folder, nest)
    with pytest.raises(ModelFileError, match="nested too deeply"):
        Detector.load(folder)


TENSOR_ATTACKS: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "nan": (lambda t: t["module.convs.0.bias"].fill_(float("nan")), "NaN or infinite"),
    "missing": (lambda t: t.pop("module.convs.0.bias"), "'module.convs.0.bias' is missing"),
    "one more": (lambda t: t.update({"module.x": torch.ones(1)}), "'x', which GCN does not have"),
    "shape": (lambda t: t.update({"module.convs.0.bias": torch.ones(5)}), r"shape \[5\]"),
    "dtype": (lambda t: t.update({"module.convs.0.bias": torch.ones(4).double()}), "torch.float64"),
    "a stray": (lambda t: t.update({"x": torch.ones(1)}), "'x' belongs to no part"),
    "a method": (lambda t: t.update({"scorer.score": torch.ones(1)}), "is not a learnt value"),
    "a dunder": (lambda t: t.update({"scorer.__class__": torch.ones(1)}), "is not a learnt value"),
    "a path": (lambda t: t.update({"scorer.isolated.x_": torch.ones(1)}), "is not a learnt value"),
    "negative variance": (lambda t: t["module.norms.0.running_var"].fill_(-1.0), "do not return a finite score"),
    "whole calibration scores": (lambda t: t.update({"calibration.scores": torch.ones(651).long()}), "int64"),
    "short calibration": (lambda t: t.update({"calibration.scores": torch.ones(3)}), r"expected .*\[651\]"),
    "coarse calibration scores": (lambda t: t.update({"calibration.scores": torch.ones(651).bfloat16()}), "bfloat16"),
    "huge weights": (lambda t: [t[k].fill_(3.4e38) for k in t if k.startswith("module.convs")], "a finite score"),
    "a value for each of three nodes": (lambda t: t.update({"scorer.prior_": torch.ones(3)}), "do not work together"),
    "a value for each of five nodes": (lambda t: t.update({"scorer.prior_": torch.ones(5)}), "do not work together"),
    "eight bits": (lambda t: t.update({"x": torch.ones(4).to(torch.float8_e4m3fn)}), "'x' is F8_E4M3, expected one of"),
    "many dimensions": (lambda t: t.update({"x": torch.ones([1] * 9)}), "'x' belongs to no part"),
    "too many dimensions": (lambda t: t.update({"module.convs.0.bias": torch.ones([1] * 65)}), "has 65 dimensions"),
    "class means": (lambda t: t.update({"class_means": torch.ones(2, 2)}), "'class_means' is"),
}


@pytest.mark.parametrize("attack", TENSOR_ATTACKS)
def test_hostile_tensors_are_refused(folder: Path, attack: str) -> None:
    change, message = TENSOR_ATTACKS[attack]
    rewrite_tensors(folder, change)
    with pytest.raises(ModelFileError, match=message):
        Detector.load(folder)


RAW_ATTACKS: dict[str, tuple[str, bytes, str]] = {
    "deep json": ("config.json", b"[" * 100_000, "damaged"),
    "not json": ("config.json", b"\x80\x04cos\nsystem\n", "damaged"),
    "nan": ("config.json", b'{"format": NaN}', "NaN, which is not a number"),
    "twice": ("config.json", b'{"a": 1, "a": 2}', "occurs twice"),
    "a long number": ("config.json", b'{"a": ' + b"9" * 10_000 + b"}", "damaged"),
    "empty": ("config.json", b"", "damaged"),
    "utf-16": ("config.json", "{}".encode("utf-16"), "damaged"),
    "empty tensors": ("model.safetensors", b"", "damaged or not a safetensors"),
    "a pickle": ("model.safetensors", b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.", "damaged or not a safetensors"),
    "a huge header": ("model.safetensors", (2**62).to_bytes(8, "little") + b"{}", "damaged or not a safetensors"),
    "a huge shape": (
        "model.safetensors",
        (71).to_bytes(8, "little")
        + b'{"x":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}    '
        + b"0000",
        "damaged or not a safetensors",
    ),
}


@pytest.mark.parametrize("attack", RAW_ATTACKS)
def test_hostile_bytes_are_refused(folder: Path, attack: str) -> None:
    name, content, message = RAW_ATTACKS[attack]
    (folder / name).write_bytes(content)
    sign(folder)
    with pytest.raises(ModelFileError, match=message):
        Detector.load(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "manifest.json"])
def test_missing_files_folders_and_pipes_are_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    absent = "it has no config.json. A saved model is" if name == "config.json" else "missing or not a regular file"
    with pytest.raises(ModelFileError, match=absent):
        Detector.load(folder)
    os.mkfifo(folder / name)
    with pytest.raises(ModelFileError, match="missing or not a regular file"):
        Detector.load(folder)
    with pytest.raises(ModelFileError, match="is not a folder"):
        Detector.load(folder / "nowhere")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "manifest.json"])
def test_every_changed_byte_is_refused(folder: Path, name: str) -> None:
    raw = (folder / name).read_bytes()
    for place in range(0, len(raw), 11 if name == "model.safetensors" else 1):
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        (folder / name).write_bytes(changed)
        with pytest.raises(ModelFileError):
            Detector.load(folder, device="cpu")
    (folder / name).write_bytes(raw + b" ")
    with pytest.raises(ModelFileError):
        Detector.load(folder)
    (folder / name).write_bytes(raw)
    Detector.load(folder)


def test_a_changed_config_is_not_shown_either(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"num_hops": 32', '"num_hops": 22'))
    with pytest.raises(ModelFileError, match=r"config.json is damaged or was changed: its checksum is not that in man"):
        read_config(folder)


def paths_of(config: Any, path: tuple = ()) -> Iterator[tuple]:
    """The places of all fields."""
    items = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    for key, value in items:
        if isinstance(config, dict):
            yield (*path, key)
        yield from paths_of(value, (*path, key))


def test_every_missing_field_is_an_error(folder: Path) -> None:
    sound = json.loads((folder / "config.json").read_text())
    paths = list(paths_of(sound))
    assert ("scorer", "num_hops") in paths
    assert ("objective", "parts", 0, 1, "class") in paths
    for path in paths:

        def leave_out(config: dict[str, Any], path: tuple = path) -> dict[str, Any]:
            config = copy.deepcopy(sound)
            place: Any = config
            for step in path[:-1]:
                place = place[step]
            del place[path[-1]]
            return config

        rewrite(folder, leave_out)
        with pytest.raises(ModelFileError):
            Detector.load(folder, device="cpu")


def test_the_manifest_lists_the_other_files_and_nothing_else(folder: Path) -> None:
    raw = (folder / "manifest.json").read_bytes()
    sign(folder)
    assert (folder / "manifest.json").read_bytes() == raw
    facts = json.loads(raw)
    odd: list[Any] = [{}, facts | {"more": facts["config.json"]}, [], {"config.json": facts["config.json"]}]
    for changed in odd:
        (folder / "manifest.json").write_text(json.dumps(changed, indent=1) + "\n")
        with pytest.raises(ModelFileError, match=r"manifest\.json"):
            Detector.load(folder)


OLD = Path(__file__).parent / "saved_by_0_1_0"


def test_folders_that_version_0_1_0_wrote_say_how_to_make_the_model_anew(fitted: Detector, tmp_path: Path) -> None:
    message = r"format version 1 \(oddnode '0\.1\.0'\).*fit the model again with this version and save it"
    with pytest.raises(ModelFileError, match=message):
        Detector.load(OLD / "detector")
    for read in (TableModel.load, read_config):
        with pytest.raises(ModelFileError, match=message):
            read(OLD / "tables")
    shutil.copytree(OLD / "detector", tmp_path / "model")
    fitted.save(tmp_path / "model")
    assert Detector.load(tmp_path / "model").threshold_ == fitted.threshold_


def test_sizes_are_checked_before_anything_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of eight terabytes that takes no space on the disk."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    size = 2**43
    with path.open("r+b") as file:
        file.truncate(size)
    with pytest.raises(ModelFileError, match=f"has {size} bytes, but {len(raw)} according to manifest.json"):
        Detector.load(folder)
    facts = json.loads((folder / "manifest.json").read_text())
    facts["model.safetensors"]["bytes"] = size
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1) + "\n")
    with pytest.raises(ModelFileError, match=r"damaged or not a safetensors file: .*file not fully covered"):
        Detector.load(folder)


def test_a_tensor_larger_than_the_memory_is_an_error_of_the_file(folder: Path) -> None:
    path, size = folder / "model.safetensors", 2**43
    header = json.dumps({"x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with path.open("r+b") as file:
        file.truncate(8 + len(header) + size)
    facts = json.loads((folder / "manifest.json").read_text())
    facts["model.safetensors"]["bytes"] = 8 + len(header) + size
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1) + "\n")
    with pytest.raises(ModelFileError, match=r"model.safetensors cannot be read: it has 8,192.0 GiB, but"):
        Detector.load(folder)


def test_a_large_config_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(17 * 2**20)
    with pytest.raises(ModelFileError, match="bytes, expected at most 16777216"):
        Detector.load(folder)


def test_millions_of_hashes_are_saved_beside_the_model(fitted: Detector, tmp_path: Path, graph: Data) -> None:
    hashes = torch.arange(4_200_000) * 2**40
    save(fitted, tmp_path / "m", {"mine": 1}, {"hashes": hashes})
    detector, config, extra = load(Detector, tmp_path / "m")
    assert config["mine"] == 1
    assert torch.equal(extra["hashes"], hashes)
    assert torch.equal(detector.score_samples(graph), fitted.score_samples(graph))
    rewrite_tensors(tmp_path / "m", lambda t: t.update({"extra.hashes": torch.ones(3)}))
    with pytest.raises(ModelFileError, match=r"'extra.hashes' is torch.float32 of shape \[3\], expected torch.int64"):
        Detector.load(tmp_path / "m")


def test_a_config_too_large_to_be_loaded_is_not_saved(fitted: Detector, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use fewer columns"):
        save(fitted, tmp_path / "m", {"table": ["x" * 1000] * 20_000})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("num_networks", "num_layers", "message"),
    [
        (1, 1000, "num_layers is 1000, but there are 9 weights"),
        (1000, 2, "num_networks is 1000, but there are 9 weights, not 1000 times 9"),
        (1000, 50, "num_networks is 1000, but there are"),
    ],
)
def test_networks_without_weights_are_not_built(
    folder: Path, num_networks: int, num_layers: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    new_backbone = saving.new_backbone

    def counted(*arguments: Any) -> nn.Module:
        built.append(arguments)
        return new_backbone(*arguments)

    monkeypatch.setattr(saving, "new_backbone", counted)
    rewrite(folder, lambda c: c.update(num_networks=num_networks))
    rewrite(folder, lambda c: c["settings"].update(num_layers=num_layers))
    with pytest.raises(ModelFileError, match=message):
        Detector.load(folder)
    assert len(built) <= 1


@pytest.mark.parametrize("entry", [{"shape": [1] * 5000}, {"shape": [2**40, 2**40]}, {"data_offsets": [0, 2**40]}])
def test_the_header_of_the_tensors_is_checked(folder: Path, entry: dict[str, Any]) -> None:
    rewrite_header(folder, lambda h: h["module.convs.0.bias"].update(entry))
    with pytest.raises(ModelFileError, match="damaged or not a safetensors file"):
        Detector.load(folder)


def test_tensors_that_could_not_be_loaded_are_not_saved(graph: Data, tmp_path: Path) -> None:
    module = Net()
    module.register_buffer("odd", torch.ones(2).to(torch.float8_e4m3fn))
    detector = Detector(module, epochs=1).fit(graph)
    with pytest.raises(ValueError, match=r"cannot be saved: 'module.odd' is F8_E4M3, expected one of"):
        detector.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["m" * 300, "a\0b", "loop", "loop/m", ""])
def test_paths_that_cannot_be_are_errors_of_the_folder(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    with pytest.raises(ModelFileError, match=r"not a folder with a saved model|not a saved model"):
        Detector.load(name)


def test_an_unreadable_file_is_an_error_of_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelFileError, match=r"config\.json cannot be read: Permission denied"):
        Detector.load(folder)
