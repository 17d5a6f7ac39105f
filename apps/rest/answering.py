"""Answers of routes that run in a thread, written out in that thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, get_args

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from apps.rest.reply import Reply

_WRITES: Final = "hydra_writes"
"""Attribute of functions of :func:`_written`: a route that is included is made once more."""


class AnsweringRoute(APIRoute):
    """A route whose function's visit to a thread is its only one.

    FastAPI goes to a thread for the function and again to validate what it returns, which is a
    model already, and writes the answer in the event loop, where everybody waits for a large one.
    Each visit has to wait for the interpreter's lock twice: 5 ms and more while others compute.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        if not _answers_itself(endpoint) and not hasattr(endpoint, _WRITES):
            endpoint = _written(endpoint, settings.get("status_code") or 200)
        super().__init__(path, endpoint, **settings)


def _answers_itself(endpoint: Callable[..., Any]) -> bool:
    """Whether it runs in the event loop, or adds headers to FastAPI's answer."""
    if inspect.iscoroutinefunction(endpoint) or inspect.isasyncgenfunction(endpoint):
        return True
    parameters = inspect.signature(endpoint, eval_str=True).parameters.values()
    asked_for = {get_args(one.annotation)[:1] or (one.annotation,) for one in parameters}
    return not asked_for.isdisjoint({(Response,), (Reply,)})


def _written(endpoint: Callable[..., Any], status: int) -> Callable[..., Any]:
    @wraps(endpoint)
    def answer(*args: object, **named: object) -> object:
        found = endpoint(*args, **named)
        if not isinstance(found, BaseModel):
            return found
        return Response(found.model_dump_json(by_alias=True), status, media_type="application/json")

    setattr(answer, _WRITES, True)
    return answer
