"""Check that the docstrings of public functions, methods and classes document all of their parameters.

The checks are numpydoc's PR01 (a parameter is not documented), PR02 (one that is documented does not exist) and PR10
(no space before the colon). Objects are imported rather than parsed, since the parameters of a dataclass exist only
then. Commands are left out: typer documents each of their parameters by its own help.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator

from numpydoc.validate import validate

import oddnode

CHECKS = {"PR01", "PR02", "PR10"}
LEFT_OUT = ("oddnode.cli.", "oddnode.__main__")


def public_objects() -> Iterator[str]:
    """The full name of every public function, class and method that has a docstring of its own."""
    for found in pkgutil.walk_packages(oddnode.__path__, "oddnode."):
        if found.name.startswith(LEFT_OUT):
            continue
        module = importlib.import_module(found.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != found.name:
                continue
            if inspect.isclass(thing):
                if has_own_constructor(thing):
                    yield f"{found.name}.{name}"
                yield from (f"{found.name}.{name}.{method}" for method in public_methods(thing))
            elif inspect.isfunction(inspect.unwrap(thing)):
                yield f"{found.name}.{name}"


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


def main() -> None:
    """Print one line per finding; the exit status is not zero where there is one."""
    count: Counter[str] = Counter()
    for name in sorted(set(public_objects())):
        report = validate(name)
        for code, message in report["errors"]:
            if code in CHECKS:
                count[name.split(".")[1]] += 1
                print(f"{report['file']}:{report['file_line']}: {name}: {code} {message}")
    if count:
        sys.exit(f"{count.total()} docstrings: " + ", ".join(f"{package} {n}" for package, n in sorted(count.items())))


if __name__ == "__main__":
    main()
