"""The protocols under which methods are evaluated: clean, and published (the paper's code, quirk by quirk).

May import: detector and below, tasks.
"""

from typing import TYPE_CHECKING

from oddnode._utils.lazy import lazy_names
from oddnode.protocols.base import PROTOCOLS, EvaluationProtocol, get_protocol, register_protocol

if TYPE_CHECKING:
    from oddnode.protocols.clean import CleanProtocol
    from oddnode.protocols.published import PublishedProtocol

__all__ = ["PROTOCOLS", "CleanProtocol", "EvaluationProtocol", "PublishedProtocol", "get_protocol", "register_protocol"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "oddnode.protocols.clean": ["CleanProtocol"],
        "oddnode.protocols.published": ["PublishedProtocol"],
    },
)
