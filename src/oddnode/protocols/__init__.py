"""The protocols under which methods are evaluated: clean, and published (the paper's code, quirk by quirk).

May import: detector and below, tasks.
"""

from oddnode.protocols.base import PROTOCOLS, EvaluationProtocol, get_protocol, register_protocol
from oddnode.protocols.clean import CleanProtocol
from oddnode.protocols.published import PublishedProtocol

__all__ = ["PROTOCOLS", "CleanProtocol", "EvaluationProtocol", "PublishedProtocol", "get_protocol", "register_protocol"]
