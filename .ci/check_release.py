"""Check that everything that states the version of a release states the same one.

    python .ci/check_release.py v0.2.0 https://github.com/oddnode/oddnode   # a tag and the repository it is in
    python .ci/check_release.py --notes                                     # the changelog of this version

The version has one source, ``src/oddnode/_version.py``. The tag, ``CITATION.cff`` and the first heading of
``CHANGELOG.md`` must agree with it, and the addresses in ``pyproject.toml`` must be those of the repository.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path


def first(pattern: str, text: str) -> str:
    """What the group of a pattern matches first, or nothing."""
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else ""


def notes(root: Path) -> tuple[str, str]:
    """The first heading of the changelog, and what stands below it."""
    sections = (root / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")
    heading, _, body = sections[1].partition("\n")
    return heading, body.strip()


def notes_for_github(root: Path) -> str:
    """What the changelog says about this version, with links that lead into the repository from outside of it."""
    version, body = notes(root)
    repository = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    return re.sub(r"(?<=\]\()(?![a-z]+:|#)", f"{repository}/blob/v{version}/", body)


def problems(root: Path, tag: str, repository: str) -> list[str]:
    """One sentence for everything that does not fit the version."""
    version = first(r'^__version__ = "(.+)"$', (root / "src/oddnode/_version.py").read_text(encoding="utf-8"))
    cited = first(r"^version: (\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    heading, body = notes(root)
    found = []
    if tag != f"v{version}":
        found.append(f"The tag is {tag}, but src/oddnode/_version.py says {version}: tag v{version}.")
    if cited != version:
        found.append(f"CITATION.cff says {cited}, but src/oddnode/_version.py says {version}.")
    if heading != version:
        found.append(f"The first heading of CHANGELOG.md is {heading!r}, not {version!r}.")
    if not body:
        found.append(f"CHANGELOG.md says nothing about {heading}.")
    if project["urls"]["Repository"] != repository:
        found.append(f"pyproject.toml names the repository {project['urls']['Repository']}, but this is {repository}.")
    return found


def main() -> None:
    """Print the notes, or the problems; the exit status is not zero where there is one."""
    parser = argparse.ArgumentParser(description="Check that everything that states the version states the same one.")
    parser.add_argument("tag", nargs="?")
    parser.add_argument("repository", nargs="?")
    parser.add_argument("--notes", action="store_true", help="print what the changelog says about this version")
    options = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    if options.notes:
        print(notes_for_github(root))
    elif options.repository is None:
        parser.error("name the tag and the address of the repository, or pass --notes")
    elif found := problems(root, options.tag, options.repository):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
