"""Display names of methods and networks."""

from __future__ import annotations

__all__ = ["METHOD_NAMES", "NETWORK_NAMES"]

#: The paper's methods, as it writes them.
METHOD_NAMES = {
    "energy": "Energy",
    "gnnsafe": "GNNSafe",
    "gnnsafe+logitnorm": "GNNSafe + LogitNorm",
    "nodesafe": "NODESAFE",
    "energy-ft": "Energy-FT",
    "gnnsafe++": "GNNSafe++",
    "gnnsafe+++logitnorm": "GNNSafe++ + LogitNorm",
    "nodesafe++": "NODESAFE++",
}

NETWORK_NAMES = {"mlp": "MLP", "gcn": "GCN", "gat": "GAT", "jknet": "JKNet", "mixhop": "MixHop"}
