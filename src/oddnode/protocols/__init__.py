"""The protocols under which methods are evaluated: clean, and published (the paper's code, quirk by quirk).

May import: detector and below, tasks.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import exports
from oddnode.protocols.base import PROTOCOLS as PROTOCOLS
from oddnode.protocols.base import EvaluationProtocol as EvaluationProtocol
from oddnode.protocols.base import get_protocol as get_protocol
from oddnode.protocols.base import register_protocol as register_protocol

if TYPE_CHECKING:
    from oddnode.protocols.clean import CleanProtocol as CleanProtocol
    from oddnode.protocols.published import PublishedProtocol as PublishedProtocol
else:
    __getattr__, __dir__, __all__ = exports(__name__)
