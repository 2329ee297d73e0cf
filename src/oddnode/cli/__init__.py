"""The command line.

May import anything; nothing imports it.
"""

from oddnode.cli.app import main

__all__ = ["main"]
