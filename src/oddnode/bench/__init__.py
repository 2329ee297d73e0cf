"""A benchmark of chosen methods on chosen tasks, as tables and a report.

May import: runner and below. A name loads its module on first use: the paper's printed numbers need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oddnode.bench.choices import DEFAULT_METHODS, check_names, check_settings, expand_methods
    from oddnode.bench.comparisons import compare_with_first, comparison_table
    from oddnode.bench.latex import latex_table
    from oddnode.bench.paper_numbers import has_paper_numbers, paper_number
    from oddnode.bench.report import check_writable, write_report
    from oddnode.bench.run import benchmark
    from oddnode.bench.tables import compare_table, markdown_table, seeds_csv, to_csv
    from oddnode.bench.trackers import Tracker, log_results, open_tracker

__all__ = [
    "DEFAULT_METHODS",
    "Tracker",
    "benchmark",
    "check_names",
    "check_settings",
    "check_writable",
    "compare_table",
    "compare_with_first",
    "comparison_table",
    "expand_methods",
    "has_paper_numbers",
    "latex_table",
    "log_results",
    "markdown_table",
    "open_tracker",
    "paper_number",
    "seeds_csv",
    "to_csv",
    "write_report",
]

_HOME = {
    "DEFAULT_METHODS": "choices",
    "Tracker": "trackers",
    "benchmark": "run",
    "check_names": "choices",
    "check_settings": "choices",
    "check_writable": "report",
    "compare_table": "tables",
    "compare_with_first": "comparisons",
    "comparison_table": "comparisons",
    "expand_methods": "choices",
    "has_paper_numbers": "paper_numbers",
    "latex_table": "latex",
    "log_results": "trackers",
    "markdown_table": "tables",
    "open_tracker": "trackers",
    "paper_number": "paper_numbers",
    "seeds_csv": "tables",
    "to_csv": "tables",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
