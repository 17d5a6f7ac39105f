"""/v1/drift, /v1/reconcile: differences between what is intended and what is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from apps.rest.document import Body, Document
from apps.rest.problems import (
    DEVICE_UNAVAILABLE,
    INVALID_REQUEST,
    MALFORMED,
    UNSUPPORTED_MEDIA_TYPE,
)
from apps.rest.routing import Routes
from hydra.reconfiguration.drift import DriftKind

if TYPE_CHECKING:
    from apps.rest.asking import Service

routes = Routes("/v1", "maintenance")


class ReconcileBody(Body):
    """Nothing can be chosen."""


class Drift(Document):
    kind: DriftKind
    device: str
    subject: str
    intended: str
    actual: str


class DriftReport(Document):
    items: list[Drift]
    silent: list[str] = Field(description="Did not answer: nothing is known of them.")


class Reconciliation(Document):
    found: DriftReport
    left: DriftReport = Field(description="What could not be mended.")
    reconfigurations: list[str] = Field(description="Ids of those that it took.")


@routes.on("GET", "/drift", DEVICE_UNAVAILABLE)
def get_drift(service: Service) -> DriftReport:
    """How mirrors, VLANs and rules differ from what the controller wants; reads all devices."""
    return DriftReport.of(None, service.drift())


@routes.on(
    "POST", "/reconcile", MALFORMED, UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, DEVICE_UNAVAILABLE
)
def reconcile(_body: ReconcileBody, service: Service) -> Reconciliation:
    """Mend what /v1/drift shows; answers when that is done."""
    return Reconciliation.of(None, service.reconcile())
