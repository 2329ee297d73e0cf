"""A benchmark of chosen methods on chosen tasks, as tables and a report.

May import: runner and below. A name loads its module on first use: the paper's printed numbers need no torch.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.bench.choices import DEFAULT_METHODS as DEFAULT_METHODS
    from oddnode.bench.choices import check_names as check_names
    from oddnode.bench.choices import check_settings as check_settings
    from oddnode.bench.choices import default_methods as default_methods
    from oddnode.bench.choices import expand_methods as expand_methods
    from oddnode.bench.paper_numbers import paper_number as paper_number
    from oddnode.bench.report import check_writable as check_writable
    from oddnode.bench.report import compare_with_first as compare_with_first
    from oddnode.bench.report import comparison_table as comparison_table
    from oddnode.bench.report import write_report as write_report
    from oddnode.bench.run import benchmark as benchmark
    from oddnode.bench.tables import compare_table as compare_table
    from oddnode.bench.tables import latex_table as latex_table
    from oddnode.bench.tables import markdown_table as markdown_table
    from oddnode.bench.tables import seeds_csv as seeds_csv
    from oddnode.bench.tables import to_csv as to_csv
    from oddnode.bench.trackers import Tracker as Tracker
    from oddnode.bench.trackers import log_results as log_results
    from oddnode.bench.trackers import open_tracker as open_tracker
else:
    __getattr__, __dir__, __all__ = exports(__name__)
