"""Changes of a saved model: careless ones, which the manifest must betray, and those of somebody who signs anew."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

__all__ = ["MUTATIONS", "parses", "sign"]

FILES = ("config.json", "model.safetensors", "manifest.json")

Config = Any
Tensors = dict[str, Tensor]


def sign(folder: Path) -> None:
    """Write the manifest that fits the files as they are."""
    facts = {}
    for name in FILES[:2]:
        raw = (folder / name).read_bytes()
        facts[name] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1) + "\n")


def parses(folder: Path) -> bool:
    """Whether the checksums fit and other parsers than oddnode's can read the files."""
    try:
        facts = json.loads((folder / "manifest.json").read_bytes())
        for name in FILES[:2]:
            if facts[name]["sha256"] != hashlib.sha256((folder / name).read_bytes()).hexdigest():
                return False
        json.loads((folder / "config.json").read_bytes())
        load_file(folder / "model.safetensors")
    except Exception:
        return False
    return True


# --- careless: the manifest stays as it is --------------------------------------------------------------------------


def _flip_bit(folder: Path, rng: Random, models: Path) -> None:
    path = folder / rng.choice(FILES)
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)


def _harm_file(folder: Path, rng: Random, models: Path) -> None:
    path = folder / rng.choice(FILES)
    raw = path.read_bytes()
    start = rng.randrange(len(raw))
    harm = rng.randrange(5)
    if harm == 0:
        path.write_bytes(raw[:start])
    elif harm == 1:
        path.write_bytes(raw + rng.randbytes(rng.randrange(1, 50)))
    elif harm == 2:
        path.unlink()
    elif harm == 3:
        path.write_bytes(raw[:start] + bytes(min(512, len(raw) - start)) + raw[start + 512 :] + b"\0")
    else:
        (folder / rng.choice([name for name in FILES if name != path.name])).write_bytes(raw)


# --- signed: the manifest fits ---------------------------------------------------------------------------------------


def _in_config(change: Callable[[Config, Random, Path], Config]) -> Callable[[Path, Random, Path], None]:
    def mutate(folder: Path, rng: Random, models: Path) -> None:
        path = folder / "config.json"
        changed = change(json.loads(path.read_text()), rng, models)
        path.write_text(changed if isinstance(changed, str) else json.dumps(changed))
        sign(folder)

    return mutate


def _in_tensors(change: Callable[[Tensors, Random], Tensors]) -> Callable[[Path, Random, Path], None]:
    def mutate(folder: Path, rng: Random, models: Path) -> None:
        path = folder / "model.safetensors"
        save_file({name: value.contiguous() for name, value in change(load_file(path), rng).items()}, path)
        sign(folder)

    return mutate


def _places(value: Config) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a config."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _change_number(config: Config, rng: Random, models: Path) -> Config:
    numbers = [(c, k) for c, k in _places(config) if isinstance(c[k], (int, float)) and not isinstance(c[k], bool)]
    container, key = rng.choice(numbers)
    old = container[key]
    near = [old + 1, old - 1, old * 2, old / 2, old * 1.01, -old, int(old)]
    far = [0, -1, 1e-320, 2**31, 2**63, 10**400, 1e30, 1e300, 0.5, 1000, 10**9]
    container[key] = rng.choice(near if rng.random() < 0.6 else far)
    return config


def _change_field(config: Config, rng: Random, models: Path) -> Config:
    container, key = rng.choice(list(_places(config)))
    change = rng.randrange(4)
    if change == 0:
        del container[key]
    elif change == 1 and isinstance(container, dict):
        container[f"{key}x"] = container.pop(key)
    elif change == 2 and isinstance(container, dict):
        container[rng.choice(["own", "class", "plugin", "extra", "__class__", ""])] = rng.choice([1, "x", None, {}])
    else:
        container[key] = rng.choice([None, True, "", "x" * 3000, [], {}, [[]], {"class": "Energy"}, -1, "../../x", 1.5])
    return config


def _change_part(config: Config, rng: Random, models: Path) -> Config:
    other = json.loads((rng.choice(sorted(models.iterdir())) / "config.json").read_text())
    section = rng.choice(["objective", "scorer", "settings", "calibration", "backbone", "graph", "learnt"])
    if section in other:
        config[section] = other[section]
    for container, key in _places(config):
        if key == "class" and rng.random() < 0.2:
            names = ["Energy", "MaxSoftmax", "Propagated", "EnsembleMean", "Evidence", "Mahalanobis", "KNN", "Detector"]
            container[key] = rng.choice(names)
    return config


def _change_text(config: Config, rng: Random, models: Path) -> str:
    text = json.dumps(config, indent=1)
    place = rng.randrange(len(text))
    tokens = ["NaN", "1e999", "{", "]", '"', "\\u0000", "\\ud800", "[" * 5000, ",", "-", "0" * 300, "\x00", '"a":1,']
    cut = place + rng.choice([0, 1, 5])
    return text[:place] + rng.choice(tokens) + text[cut:]


def _change_values(tensors: Tensors, rng: Random) -> Tensors:
    name = rng.choice(sorted(tensors))
    value = tensors[name].flatten().clone()
    if len(value):
        position = rng.randrange(len(value))
        choices = [0, 1, -1, 3.4e38, -3.4e38, 1e-40, 1e10, float("nan"), float("inf")]
        choices += [float(value[position]) * 1.001] * 12
        new = rng.choice(choices)
        if not value.is_floating_point():
            new = rng.choice([0, 1, 2, -1, 63, 2**31, 2**62]) if value.dtype == torch.long else 1
        value[position] = new
    return tensors | {name: value.reshape(tensors[name].shape)}


def _change_shapes(tensors: Tensors, rng: Random) -> Tensors:
    name = rng.choice(sorted(tensors))
    value, change = tensors[name], rng.randrange(7)
    if change == 0:
        del tensors[name]
    elif change == 1:
        tensors[name + "x"] = tensors.pop(name)
    elif change == 2:
        tensors[rng.choice(["extra", "module.extra", "scorer.extra", "reference.0.nodes"])] = value.clone()
    elif change == 3:
        tensors[name] = value.to(rng.choice([torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]))
    elif change == 4:
        tensors[name] = value.unsqueeze(0)
    elif change == 5:
        tensors[name] = value[:-1] if value.dim() and len(value) else value.new_zeros(1)
    else:
        tensors[name] = torch.cat([value, value]) if value.dim() else value.reshape(1, 1)
    return tensors


def _change_header(folder: Path, rng: Random, models: Path) -> None:
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    name = rng.choice([name for name in header if name != "__metadata__"])
    change = rng.randrange(6)
    if change == 0:
        header[name]["shape"] = rng.choice([[2**31, 2**31], [1] * 5000, [-1], [2**62], [0], ["3"], [1.5]])
    elif change == 1:
        header[name]["data_offsets"] = rng.choice([[0, 2**40], [5, 0], [-8, 0], [0, 1], [2**53, 2**53 + 4]])
    elif change == 2:
        header[name]["dtype"] = rng.choice(["F8_E4M3", "O", "F128", "", "U64", "C64", None, 3])
    elif change == 3:
        header["__metadata__"] = rng.choice([{"a": 1}, {"x": "y" * 10**5}, [], None, {"format": "pt"}])
    elif change == 4:
        header[name * 40] = header[name]
    text = json.dumps(header).encode()
    size = len(text) if change < 5 else rng.choice([0, 1, 2**24, 2**40, 2**63, len(text) - 1, len(text) + 1])
    path.write_bytes(size.to_bytes(8, "little") + text + raw[8 + length :])
    sign(folder)


def _splice(folder: Path, rng: Random, models: Path) -> None:
    other = rng.choice([path for path in sorted(models.iterdir()) if path.name != folder.name])
    if rng.random() < 0.5:
        shutil.copy(other / "model.safetensors", folder)
    else:
        mine, theirs = load_file(folder / "model.safetensors"), load_file(other / "model.safetensors")
        shared = [name for name in mine if name in theirs] or list(mine)
        taken = rng.sample(shared, rng.randrange(1, len(shared) + 1))
        save_file(mine | {name: theirs.get(name, mine[name]) for name in taken}, folder / "model.safetensors")
    sign(folder)


def _rewrite(folder: Path, rng: Random, models: Path) -> None:
    """Say the same in other bytes: such a model must load and score as before."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    shuffled = dict(rng.sample(list(config.items()), len(config)))
    path.write_text(json.dumps(shuffled, indent=rng.choice([None, 0, 4]), ensure_ascii=rng.random() < 0.5))
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors", {"note": "x" * rng.randrange(50)})
    sign(folder)


#: By class: what changes a copy of a model in place.
MUTATIONS: dict[str, Callable[[Path, Random, Path], None]] = {
    "flipped bit": _flip_bit,
    "harmed file": _harm_file,
    "number, signed": _in_config(_change_number),
    "field, signed": _in_config(_change_field),
    "part, signed": _in_config(_change_part),
    "text, signed": _in_config(_change_text),
    "tensor values, signed": _in_tensors(_change_values),
    "tensor shapes, signed": _in_tensors(_change_shapes),
    "tensor header, signed": _change_header,
    "two models, signed": _splice,
    "same in other bytes": _rewrite,
}
