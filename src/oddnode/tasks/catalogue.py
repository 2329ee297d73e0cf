"""The data sets of the library and their tasks: names, files, licences and costs.

Imports no slow module: the module that reads a data set is imported when its graph is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from oddnode.tasks.base import Task, TaskRules
from oddnode.tasks.datasets import FEATURE, STRUCTURE, DatasetSpec, TaskFamily, TaskSpec, leave_out
from oddnode.tasks.files import DataDir, DataFiles

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = [
    "ARXIV",
    "ARXIV_FILES",
    "DIGITS",
    "FOLDERS",
    "KINDS",
    "PLACEMENTS",
    "PLANETOID",
    "PLANETOID_PARTS",
    "PLANETOID_URL",
    "TWITCH",
    "TWITCH_REGIONS",
    "UNSEEN_KINDS",
    "Placement",
    "arrivals_families",
    "planetoid_files",
    "twitch_file_names",
    "twitch_files",
]


# --- digits ----------------------------------------------------------------------------------------------------------


def _load_digits(data_dir: DataDir, seed: int) -> Data:
    from oddnode.tasks.digits import digits_graph

    return digits_graph(seed)


DIGITS = DatasetSpec.from_graph(
    "digits",
    _load_digits,
    label_split=([0, 1, 2, 3, 4], [5], [6, 7, 8, 9]),
    licence="BSD-3-Clause, UCI (CC BY 4.0)",
    seconds=1.0,
)


# --- Cora, CiteSeer and PubMed ---------------------------------------------------------------------------------------

#: Name of a data set -> name of its folder.
FOLDERS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}

PLANETOID_URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
#: The ends of the names of a data set's files.
PLANETOID_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")

# ID, exposed and OOD classes in label leave-out. The published split has one rule: classes above t are ID, t is exposed
# and classes below t are OOD. This leaves PubMed a single ID class; see docs/tasks.md.
_LABEL_SPLITS = {
    "cora": ([4, 5, 6], [3], [0, 1, 2]),
    "citeseer": ([4, 5], [3], [0, 1, 2]),
    "pubmed": ([2], [1], [0]),
}
_SECONDS = {"cora": 0.9, "citeseer": 1.3, "pubmed": 5.5}


def planetoid_files(name: str) -> DataFiles:
    """Describe the files of a citation graph.

    Parameters
    ----------
    name : str
        One of `FOLDERS`.
    """
    inside = f"{FOLDERS[name]}/raw"
    return DataFiles(
        FOLDERS[name],
        tuple(f"ind.{name}.{part}" for part in PLANETOID_PARTS),
        how_to_get=f"get them from {PLANETOID_URL} and put them into <data dir>/planetoid/{inside}",
        folders_in_data_dir=(f"planetoid/{inside}", inside),
        folders_in_cache=(f"planetoid/{inside}",),
    )


def _planetoid(name: str) -> DatasetSpec:
    def load(data_dir: DataDir, seed: int) -> Data:
        from oddnode.tasks.planetoid import planetoid_graph

        return planetoid_graph(name, data_dir)

    def download(data_dir: DataDir) -> object:
        from oddnode.tasks.planetoid import download_planetoid

        return download_planetoid(name, data_dir)

    return DatasetSpec.from_graph(
        name,
        load,
        families={"structure": STRUCTURE, "feature": FEATURE, "label": leave_out(*_LABEL_SPLITS[name])},
        fixed_split=True,
        licence="no licence stated; cite Sen et al. 2008 and Yang et al. 2016",
        files=planetoid_files(name),
        download=download,
        seconds=_SECONDS[name],
    )


#: Cora, CiteSeer and PubMed.
PLANETOID = tuple(_planetoid(name) for name in FOLDERS)


# --- Twitch ----------------------------------------------------------------------------------------------------------

_TWITCH_URL = "https://snap.stanford.edu/data/twitch-social-networks.html"
#: The ID region, the exposed one, and those with the OOD nodes to find.
TWITCH_REGIONS = ("DE", "ENGB", "ES", "FR", "RU")


def twitch_file_names(region: str) -> list[str]:
    """List the names of the files of a region: edges, features and labels.

    Parameters
    ----------
    region : str
        One of `TWITCH_REGIONS`.
    """
    return [f"musae_{region}_{part}" for part in ("edges.csv", "features.json", "target.csv")]


def twitch_files(*regions: str) -> DataFiles:
    """Describe the files of some regions.

    Parameters
    ----------
    *regions : str
        As for `twitch_file_names`.
    """
    return DataFiles(
        "Twitch",
        tuple(name for region in regions for name in twitch_file_names(region)),
        how_to_get=f"get the raw files from {_TWITCH_URL} and put all of them into <data dir>/twitch",
        folders_in_data_dir=("twitch", "."),
        folders_in_cache=("twitch",),
    )


def _make_twitch(data_dir: DataDir, seed: int, rules: TaskRules) -> Task:
    from oddnode.tasks.twitch import twitch_task

    return twitch_task(data_dir, seed, rules)


TWITCH = DatasetSpec(
    "twitch",
    (TaskSpec("twitch", _make_twitch),),
    licence="no licence stated; cite Rozemberczki et al. 2019",
    files=twitch_files(*TWITCH_REGIONS),
    seconds=5.5,
)


# --- Arxiv -----------------------------------------------------------------------------------------------------------

# An archive of the folder arxiv/raw.
_ARXIV_URL = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
# OGB's name for the folder, and the archive's own.
_ARXIV_FOLDERS = ("ogbn_arxiv/raw", "arxiv/raw")
_ARXIV_NAMES = ("num-node-list", "num-edge-list", "edge", "node-feat", "node-label", "node_year")
ARXIV_FILES = DataFiles(
    "Arxiv",
    tuple(f"{name}.csv.gz" for name in _ARXIV_NAMES),
    how_to_get=f"get {_ARXIV_URL} and unpack it into <data dir> (it makes arxiv/raw)",
    folders_in_data_dir=_ARXIV_FOLDERS,
    folders_in_cache=_ARXIV_FOLDERS,
)


def _make_arxiv(data_dir: DataDir, seed: int, rules: TaskRules) -> Task:
    from oddnode.tasks.arxiv import arxiv_task

    return arxiv_task(data_dir, seed, rules)


ARXIV = DatasetSpec(
    "arxiv",
    (TaskSpec("arxiv", _make_arxiv),),
    licence="ODC-BY 1.0; cite Hu et al. 2020",
    files=ARXIV_FILES,
    optional=True,  # large, and never downloaded automatically
    seconds=80.0,
)


# --- arrivals --------------------------------------------------------------------------------------------------------

#: Where unknown arrivals are: one by one, each with a known neighbour, or in connected groups of about eight.
Placement = Literal["scattered", "grouped"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)

#: Kinds of unknown arrivals in the benchmark: of classes that training lacks, with mixed features, with other edges.
KINDS = ("label", "feature", "structure")

#: Kinds of unknown arrivals that no setting was chosen on.
UNSEEN_KINDS = ("noisy", "shuffled", "overlinked", "bridged")


def arrivals_families() -> dict[str, TaskFamily]:
    """The families of the benchmark by name.

    ``arrivals`` has the three kinds, scattered and grouped, with 5 % unknown arrivals; ``arrivals-1%`` and
    ``arrivals-20%`` have other shares, and ``unseen`` has the kinds that no setting was chosen on.
    """
    groups: dict[str, tuple[tuple[str, ...], float]] = {
        "arrivals": (KINDS, 0.05),
        "arrivals-1%": (KINDS, 0.01),
        "arrivals-20%": (KINDS, 0.2),
        "unseen": (UNSEEN_KINDS, 0.05),
    }
    return {
        f"{group}/{kind}-{placement}": _family(kind, placement, share)
        for group, (kinds, share) in groups.items()
        for kind in kinds
        for placement in PLACEMENTS
    }


def _family(kind: str, placement: Placement, share: float) -> TaskFamily:
    def make(name: str, data: Data, seed: int, rules: TaskRules) -> Task:
        from oddnode.tasks.arrivals import Arrivals, arrivals_task

        return arrivals_task(name, data, Arrivals(kind, placement, share), seed, rules)

    nodes = "known classes" if kind == "label" else "all classes"
    return TaskFamily(make, training_graph=f"{nodes}, {100 * share:g} % unknown arrivals")
