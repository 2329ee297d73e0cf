"""All families of trials, by name."""

from __future__ import annotations

from soak.arrivals import Arrivals
from soak.disks import Disks
from soak.folders import Folders
from soak.graphs import Graphs
from soak.kills import Kills
from soak.leaks import Leaks
from soak.models import Models
from soak.ranks import Ranks
from soak.services import Services
from soak.statistics import Statistics
from soak.stores import Stores
from soak.tables import Tables
from soak.threads import Threads
from soak.trial import Family

__all__ = ["FAMILIES", "chosen"]

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Models(),
        Tables(),
        Graphs(),
        Folders(),
        Arrivals(),
        Ranks(),
        Services(),
        Stores(),
        Kills(),
        Disks(),
        Threads(),
        Leaks(),
        Statistics(),
    )
}


def chosen(names: str | None) -> list[Family]:
    """Return the families with some names, separated by commas; all of them for None."""
    return list(FAMILIES.values()) if names is None else [FAMILIES[name.strip()] for name in names.split(",")]
