"""A small model of tables, and services of it: in this process, and as a process of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from oddnode.service.app import create_app
from oddnode.service.state import Source, State
from oddnode.tables import TableModel
from tests.tables.shop import Shop, shop


@pytest.fixture(scope="session")
def goods() -> Shop:
    return shop(num_old=300, num_known=20, num_planted=10)


@pytest.fixture(scope="session")
def source(goods: Shop, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A saved model, and the tables that it was fitted on."""
    folder = tmp_path_factory.mktemp("shop")
    nodes, edges = goods.old
    nodes.to_parquet(folder / "nodes.parquet")
    edges.to_parquet(folder / "edges.parquet")
    model, _ = TableModel.fit(
        nodes, edges, id_column="id", label_column="category", method="energy", epochs=10, device="cpu"
    )
    model.save(folder / "model")
    return Source(folder / "model", None, [folder / "nodes.parquet"], [folder / "edges.parquet"])


@pytest.fixture
def started(source: Source, tmp_path: Path) -> Iterator[Callable[..., State]]:
    """Start states, by default with a log in ``tmp_path / "state"``; they are stopped after the test."""
    states: list[State] = []

    def start(folder: Path | None = tmp_path / "state", **settings: Any) -> State:
        state = State(source, folder, **settings)
        states.append(state)
        state.start()
        state.wait()
        return state

    yield start
    for state in states:
        state.close()


@pytest.fixture
def state(started: Callable[..., State]) -> State:
    return started()


@pytest.fixture
def client(state: State) -> Iterator[TestClient]:
    with TestClient(create_app(state), base_url="http://localhost") as client:
        yield client


@pytest.fixture(scope="session")
def row(goods: Shop) -> Callable[..., dict[str, Any]]:
    """The row of a product, perhaps with another id."""

    def make(place: int, id: Any = None) -> dict[str, Any]:
        found = goods.nodes.iloc[place].astype(object)
        values = found.where(found.notna(), None).to_dict()
        return values | ({} if id is None else {"id": id})

    return make
