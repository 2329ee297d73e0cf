"""Nodes that are scored when they arrive, in a graph that grows and shrinks.

May import: tables and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.online.answers import ErrorReport as ErrorReport
    from oddnode.online.answers import Judgement as Judgement
    from oddnode.online.answers import KeptScores as KeptScores
    from oddnode.online.answers import KindOfEvidence as KindOfEvidence
    from oddnode.online.answers import Neighbourhood as Neighbourhood
    from oddnode.online.answers import surprise_columns as surprise_columns
    from oddnode.online.live import LiveGraph as LiveGraph
else:
    __getattr__, __dir__, __all__ = exports(__name__)
