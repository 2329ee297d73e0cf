"""The README as PyPI shows it: links into the repository, which lead nowhere there, become addresses of the tag.

Hatchling calls this when it builds the wheel and the source distribution (``tool.hatch.metadata.hooks.custom`` in
``pyproject.toml``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: The target of a Markdown link that is neither an address nor a heading of the same page.
RELATIVE = re.compile(r"(?<=\]\()(?![a-z]+:|#)")


class PyPIReadme(MetadataHookInterface):
    """Sets the readme in the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        version = re.search(r'"(.+)"', (root / "src/oddnode/_version.py").read_text(encoding="utf-8"))
        assert version is not None
        address = f"{metadata['urls']['Repository']}/blob/v{version[1]}/"
        text = RELATIVE.sub(address, (root / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
