"""Check that what the reference page renders documents all of its parameters.

The checks are numpydoc's PR01 (a parameter is not documented), PR02 (one that is documented does not exist) and PR10
(no space before the colon). Fields of dataclasses may be described where they are declared instead, by comments that
begin with ``#:``, as Sphinx reads them. Names come from ``docs/reference.rst``; internals need no parameter sections.
Objects are imported rather than parsed, since the parameters of a dataclass exist only then.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pydoc
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from numpydoc.validate import validate

CHECKS = {"PR01", "PR02", "PR10"}
REFERENCE = Path(__file__).parents[1] / "docs" / "reference.rst"
DIRECTIVE = re.compile(
    r"\.\. (currentmodule|autoclass|autofunction|autoexception):: (\S+)(?:\n +:(no-)?members:((?:[ \n]+\w+,?)*))?"
)


def rendered_objects() -> Iterator[str]:
    """The full name of every function, class and method with a docstring of its own that the page renders."""
    module = ""
    for kind, name, none, chosen in DIRECTIVE.findall(REFERENCE.read_text(encoding="utf-8")):
        if kind == "currentmodule":
            module = name
            continue
        thing = getattr(importlib.import_module(module), name)
        if inspect.isclass(thing):
            if has_own_constructor(thing):
                yield f"{module}.{name}"
            shown = set() if none else set(re.findall(r"\w+", chosen)) or set(vars(thing))
            yield from (f"{module}.{name}.{method}" for method in public_methods(thing) if method in shown)
        else:
            yield f"{module}.{name}"


def has_own_constructor(kind: type) -> bool:
    """Whether a class or a base class of ours defines the constructor.

    An inherited one (of `torch.nn.Module`, `Protocol`, `torch.autograd.Function`, ...) is documented where it is
    defined, and numpydoc would ask for its ``*args, **kwargs``.
    """
    return str(getattr(kind.__init__, "__module__", "")).startswith("oddnode.")  # type: ignore[misc]


def public_methods(kind: type) -> Iterator[str]:
    """The names of a class's own public methods that have docstrings."""
    for name, member in vars(kind).items():
        function = getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield name


def described_fields(kind: object) -> set[str]:
    """The fields of a dataclass that a comment describes: in their line, above it, or by name for several at once."""
    found: set[str] = set()
    for each in getattr(kind, "__mro__", ()):
        if dataclasses.is_dataclass(each):
            for above, line in pairwise(["", *inspect.getsource(each).splitlines()]):
                code, _, comment = line.partition("#: ")
                field = re.match(r"    (\w+): ", code)
                if field and (comment or above.startswith("    #: ")):
                    found.add(field[1])
                found.update(re.findall(r"`(\w+)`", comment.partition(":")[0]))
    return found


def main() -> None:
    """Print one line per finding; the exit status is not zero where there is one."""
    findings = 0
    for name in rendered_objects():
        report = validate(name)
        described = described_fields(pydoc.locate(name))
        for code, message in report["errors"]:
            if code in CHECKS and not (code == "PR01" and described.issuperset(re.findall(r"'(\w+)'", message))):
                findings += 1
                print(f"{report['file']}:{report['file_line']}: {name}: {code} {message}")
    if findings:
        sys.exit(f"{findings} parameters are undocumented or unknown")


if __name__ == "__main__":
    main()
