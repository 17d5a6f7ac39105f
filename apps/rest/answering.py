"""Answers of routes that run in a thread, serialized in the same thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from fastapi import Response
from pydantic import BaseModel


def written(function: Callable[..., Any], status: int) -> Callable[..., Any]:
    """Wrap ``function`` so that each request visits a thread once; a coroutine is returned
    unchanged.

    FastAPI would visit a thread for the function, and again to validate the result, although the
    result is a model already. FastAPI would then serialize the answer in the event loop, where a
    large answer delays all requests. Each visit waits for the GIL twice: 5 ms and more while other
    threads compute.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return function

    @wraps(function)
    def answer(*args: object, **named: object) -> object:
        found = function(*args, **named)
        if not isinstance(found, BaseModel):
            return found
        return Response(found.model_dump_json(by_alias=True), status, media_type="application/json")

    return answer
