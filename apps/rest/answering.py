"""Answers of routes that run in a thread, written out in that thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from fastapi import Response
from pydantic import BaseModel


def written(function: Callable[..., Any], status: int) -> Callable[..., Any]:
    """``function`` so that its visit to a thread is its only one; a coroutine's as it is.

    FastAPI goes to a thread for the function and again to validate what it returns, which is a
    model already, and writes the answer in the event loop, where everybody waits for a large one.
    Each visit has to wait for the interpreter's lock twice: 5 ms and more while others compute.
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
