"""/problems: what the types of problem documents mean"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from apps.rest import models
from apps.rest.problems import CATALOGUE, UNKNOWN_NAME, responses
from hydra.errors import UnknownName

router = APIRouter()
_PROBLEM_BY_SLUG: Final = {problem.slug: problem for problem in CATALOGUE}


@router.get("/problems/{slug}", tags=["operations"], responses=responses(UNKNOWN_NAME))
async def describe_problem(slug: str) -> models.ProblemDescription:
    """Description that the ``type`` of a problem document points to."""
    problem = _PROBLEM_BY_SLUG.get(slug)
    if problem is None:
        raise UnknownName(f"no problem type {slug!r}: there are {', '.join(_PROBLEM_BY_SLUG)}")
    return models.ProblemDescription(
        type=problem.uri, title=problem.title, status=problem.status, meaning=problem.meaning
    )
