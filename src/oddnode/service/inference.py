"""The Open Inference Protocol, version 2: health, metadata, and inference on ids of nodes of the graph."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Meta, Struct

from oddnode._version import __version__
from oddnode.service.app import answer, as_json, body_of, check_size, readyz, service
from oddnode.service.requests import Id, Problem, decoded
from oddnode.service.state import State

NAME = "oddnode"
_OUTPUTS = (("score", "FP64"), ("p_value", "FP64"), ("is_ood", "BOOL"))

router = APIRouter(prefix="/v2", tags=["Open Inference Protocol"])


class Input(Struct):
    """The input ``id``: integers, or strings as bytes."""

    name: str
    shape: Annotated[list[int], Meta(min_length=1, max_length=2)]
    datatype: str
    data: list[Id | list[Id]]


class Wanted(Struct):
    """An output that is asked for."""

    name: str


class Inference(Struct):
    """A request; what the protocol has besides is ignored, as it says."""

    inputs: Annotated[list[Input], Meta(min_length=1, max_length=1)]
    id: str | None = None
    outputs: list[Wanted] = []


def _check_model(name: str) -> None:
    if name != NAME:
        raise Problem(404, f"there is no model {name[:100]!r}, only {NAME!r}")


@router.get("")
async def server(request: Request) -> Response:
    """What the server is"""
    return as_json(msgspec.json.encode({"name": NAME, "version": __version__, "extensions": []}))


@router.get("/health/live")
async def live(request: Request) -> Response:
    """Whether the process is well"""
    return as_json(b'{"live":true}')


@router.get("/health/ready")
async def ready(request: Request) -> Response:
    """Whether questions are answered"""
    await readyz(request)
    return as_json(b'{"ready":true}')


@router.get("/models/{name}")
async def model(request: Request, name: str) -> Response:
    """What goes in and out"""
    _check_model(name)
    kind = await answer(service(request).read(lambda: service(request).live.id_type))
    inputs = [{"name": "id", "datatype": "INT64" if kind == "int" else "BYTES", "shape": [-1]}]
    outputs = [{"name": each, "datatype": datatype, "shape": [-1]} for each, datatype in _OUTPUTS]
    facts = {"name": NAME, "versions": [service(request).model], "platform": "oddnode", "inputs": inputs}
    return as_json(msgspec.json.encode(facts | {"outputs": outputs}))


@router.get("/models/{name}/ready")
async def model_ready(request: Request, name: str) -> Response:
    """Whether the model answers"""
    _check_model(name)
    return await ready(request)


@router.post("/models/{name}/infer")
async def infer(request: Request, name: str) -> Response:
    """Kept scores of nodes by their ids; p_value is -1 where the model has none"""
    _check_model(name)
    asked = decoded(await body_of(request, "application/json"), Inference)
    count = sum(len(each) if isinstance(each, list) else 1 for each in asked.inputs[0].data)
    check_size("ids", count, request.app.state.limits.ids)
    return as_json(await answer(service(request).read(_infer, service(request), asked)))


def _infer(state: State, asked: Inference) -> bytes:
    given = asked.inputs[0]
    if given.name != "id" or given.datatype not in ("BYTES", "INT64"):
        raise Problem(422, f"the input is {given.name!r} of {given.datatype}, expected id of BYTES or INT64")
    ids: list[Any] = []
    for each in given.data:
        ids += each if isinstance(each, list) else [each]
    if any(isinstance(node, int) != (given.datatype == "INT64") for node in ids):
        raise Problem(422, f"inputs.0.data: expected {'integers' if given.datatype == 'INT64' else 'strings'} only")
    is_known = state.live.contains(ids)
    if not is_known.all():
        raise Problem(404, f"there is no node with the id {ids[int(is_known.argmin())]!r}")
    kept = state.live.scores_of(ids)
    values = {
        "score": kept.score,
        "p_value": [-1.0 if each is None else each for each in kept.p_value],
        "is_ood": [bool(each) for each in kept.is_ood],
    }
    wanted = [each.name for each in asked.outputs] or [*values]
    for each in wanted:
        if each not in values:
            raise Problem(422, f"there is no output {each[:100]!r}, only {', '.join(values)}")
    outputs = [
        {"name": each, "datatype": datatype, "shape": [len(ids)], "data": values[each]}
        for each, datatype in _OUTPUTS
        if each in wanted
    ]
    facts = {"model_name": NAME, "model_version": state.model, "outputs": outputs}
    return msgspec.json.encode(facts | ({} if asked.id is None else {"id": asked.id}))
