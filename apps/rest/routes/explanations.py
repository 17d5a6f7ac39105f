"""/v1/explanations: why the network is as it is"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from apps.rest import models, render
from apps.rest.answering import AnsweringRoute
from apps.rest.bodies import rack_named
from apps.rest.context import Service
from apps.rest.problems import NO_PLAN, UNKNOWN_NAME, responses
from hydra.errors import PlanError

router = APIRouter(prefix="/v1", route_class=AnsweringRoute)
_PROBLEMS: Final = responses(UNKNOWN_NAME, NO_PLAN)


@router.get("/explanations/circuits/{rack}/{other_rack}", tags=["operations"], responses=_PROBLEMS)
def explain_circuit(rack: str, other_rack: str, service: Service) -> models.Explanation:
    """Why two racks are joined as they are: what stands, what they want, what was decided."""
    one, other = rack_named(service.fabric, rack), rack_named(service.fabric, other_rack)
    if one == other:
        raise PlanError(f"{rack} to itself needs no circuit: name two racks")
    return render.explanation(service.fabric, service.explain(one, other))
