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
#: The start of a Markdown picture that is a file of the repository: a ``blob`` address is a page, not a picture.
PICTURE = re.compile(r"(!\[[^\]]*\]\()(?![a-z]+:)")


class PyPIReadme(MetadataHookInterface):
    """Sets the readme in the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        version = re.search(r'"(.+)"', (root / "src/oddnode/_version.py").read_text(encoding="utf-8"))
        assert version is not None
        repository, text = metadata["urls"]["Repository"], (root / "README.md").read_text(encoding="utf-8")
        text = PICTURE.sub(rf"\1{repository}/raw/v{version[1]}/", text)
        text = RELATIVE.sub(f"{repository}/blob/v{version[1]}/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
