"""`oddnode serve`: a live graph behind HTTP, with a log of changes and alerts.

May import: online, watch, tables and below.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports

if TYPE_CHECKING:
    from oddnode.service.app import Limits as Limits
    from oddnode.service.app import create_app as create_app
    from oddnode.service.client import Client as Client
    from oddnode.service.client import ServiceError as ServiceError
    from oddnode.service.exports import read_alerts as read_alerts
    from oddnode.service.exports import read_checked as read_checked
    from oddnode.service.exports import read_exposure as read_exposure
    from oddnode.service.exports import read_feedback as read_feedback
    from oddnode.service.guard import Access as Access
    from oddnode.service.log import LogError as LogError
    from oddnode.service.ray_serve import replicas as replicas
    from oddnode.service.replays import Replay as Replay
    from oddnode.service.replays import replay as replay
    from oddnode.service.state import Source as Source
    from oddnode.service.state import State as State
else:
    __getattr__, __dir__, __all__ = exports(__name__)
