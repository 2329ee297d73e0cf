"""Plugins: modules outside this package that register methods, backbones and data sets when they are imported."""

from __future__ import annotations

__all__ = ["plugin_of"]


def plugin_of(kind: type) -> str | None:
    """The plugin that a class comes from.

    Parameters
    ----------
    kind : type
        A class, for example that of a scorer.

    Returns
    -------
    str or None
        The plugin's name, or ``None`` where the class belongs to no plugin.
    """
    return None
