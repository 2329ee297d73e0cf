"""A graph in memory and on disk, without weights and with them."""

from __future__ import annotations

import pytest
from torch_geometric.data import Data

from oddnode.large import GraphFolder
from tests.large.graphs import as_folder, random_graph


@pytest.fixture(scope="session")
def data() -> Data:
    return random_graph(num_nodes=120, num_edges=500)


@pytest.fixture(scope="session")
def folder(data: Data, tmp_path_factory: pytest.TempPathFactory) -> GraphFolder:
    return as_folder(data, tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="session")
def weighted_data() -> Data:
    return random_graph(num_nodes=120, num_edges=500, weighted=True)


@pytest.fixture(scope="session")
def weighted_folder(weighted_data: Data, tmp_path_factory: pytest.TempPathFactory) -> GraphFolder:
    return as_folder(weighted_data, tmp_path_factory.mktemp("weighted"))
