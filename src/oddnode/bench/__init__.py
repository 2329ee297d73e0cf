"""A benchmark of chosen methods on chosen tasks, as tables and a report.

May import: runner and below. A name loads its module on first use: the paper's printed numbers need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oddnode.bench.choices import DEFAULT_METHODS, check_names, check_settings, expand_methods
    from oddnode.bench.paper_numbers import has_paper_numbers, paper_number
    from oddnode.bench.report import check_writable, write_report
    from oddnode.bench.run import benchmark
    from oddnode.bench.tables import compare_table, markdown_table, to_csv

__all__ = [
    "DEFAULT_METHODS",
    "benchmark",
    "check_names",
    "check_settings",
    "check_writable",
    "compare_table",
    "expand_methods",
    "has_paper_numbers",
    "markdown_table",
    "paper_number",
    "to_csv",
    "write_report",
]

_HOME = {
    "DEFAULT_METHODS": "choices",
    "benchmark": "run",
    "check_names": "choices",
    "check_settings": "choices",
    "check_writable": "report",
    "compare_table": "tables",
    "expand_methods": "choices",
    "has_paper_numbers": "paper_numbers",
    "markdown_table": "tables",
    "paper_number": "paper_numbers",
    "to_csv": "tables",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
