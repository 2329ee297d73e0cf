"""`oddnode watch`: a graph over time, window by window, with an alarm that seldom cries wolf.

May import: tables and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.watch.answers import Alarm as Alarm
    from oddnode.watch.answers import Change as Change
    from oddnode.watch.answers import OddRow as OddRow
    from oddnode.watch.answers import State as State
    from oddnode.watch.answers import WatchReport as WatchReport
    from oddnode.watch.answers import Window as Window
    from oddnode.watch.logs import LogRows as LogRows
    from oddnode.watch.martingale import Martingale as Martingale
    from oddnode.watch.metrics import write_metrics as write_metrics
    from oddnode.watch.page import write_page as write_page
    from oddnode.watch.rows import Rows as Rows
    from oddnode.watch.rows import Source as Source
    from oddnode.watch.rows import TableRows as TableRows
    from oddnode.watch.watch import Watch as Watch
    from oddnode.watch.watch import WatchError as WatchError
    from oddnode.watch.webhook import send as send
    from oddnode.watch.windows import Windows as Windows
else:
    __getattr__, __dir__, __all__ = exports(__name__)
