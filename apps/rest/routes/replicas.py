"""/v1/replicas, /v1/handover: which controllers there are, who leads, and how the store does"""

from __future__ import annotations

from fastapi import APIRouter, status

from apps.rest import models
from apps.rest.answering import AnsweringRoute
from apps.rest.context import Leading
from apps.rest.problems import LIFECYCLE_CONFLICT, STANDING_BY, responses

router = APIRouter(prefix="/v1", tags=["operations"], route_class=AnsweringRoute)


@router.post(
    "/handover",
    status_code=status.HTTP_202_ACCEPTED,
    responses=responses(LIFECYCLE_CONFLICT, STANDING_BY),
)
def hand_over(term: Leading) -> models.Handover:
    """End the controller that leads, as for an upgrade; one of those that stand by leads then."""
    return models.Handover(standing_by=[one.url for one in term.hand_over()])


@router.get("/replicas")
def list_replicas(term: Leading) -> models.Replicas:
    """Controllers that share a store; each of them answers. A controller with a journal in a file
    is alone.
    """
    found = term.replicas()
    if found is None:
        return models.Replicas(role="alone", leader=None, standing_by=[], store=[], problem="")
    return models.Replicas(
        role="standing-by" if term.over() else "leading",
        leader=None if found.leader is None else models.Replica.model_validate(found.leader),
        standing_by=[models.Replica.model_validate(one) for one in found.standing_by],
        store=[models.StoreMember.model_validate(one) for one in found.store],
        problem=found.problem,
    )
