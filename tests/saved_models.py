"""Saved models whose files are changed as somebody would who means harm: with a manifest that fits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def sign(folder: Path) -> None:
    """Write the manifest of the files as they are now."""
    facts = {}
    for name in ("config.json", "model.safetensors"):
        raw = (folder / name).read_bytes()
        facts[name] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(facts, indent=1) + "\n")


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the config in place, or replace it by what ``change`` returns."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    changed = change(config)
    path.write_text(json.dumps(config if changed is None else changed))
    sign(folder)
