"""/v1/drift, /v1/reconcile: differences between the intended and the actual state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from apps.rest.document import Body, Document
from apps.rest.problems import (
    DEVICE_UNAVAILABLE,
    MALFORMED,
    UNSUPPORTED_MEDIA_TYPE,
)
from apps.rest.routing import Routes
from hydra.reconfiguration.drift import DriftKind

if TYPE_CHECKING:
    from apps.rest.dependencies import Service

routes = Routes("/v1", "maintenance")


class ReconcileBody(Body):
    """Empty: there are no options."""


class Drift(Document):
    kind: DriftKind
    device: str
    subject: str
    intended: str
    actual: str


class DriftReport(Document):
    items: list[Drift]
    silent: list[str] = Field(description="Devices without an answer, in an unknown state.")


class Reconciliation(Document):
    found: DriftReport
    left: DriftReport = Field(description="Differences that remain.")
    reconfigurations: list[str] = Field(description="Ids of the reconfigurations used for repairs.")


@routes.on("GET", "/drift", DEVICE_UNAVAILABLE)
def get_drift(service: Service) -> DriftReport:
    """Differences of mirrors, VLANs and rules from the intended state; reads all devices."""
    return DriftReport.of(None, service.drift())


@routes.on("POST", "/reconcile", MALFORMED, UNSUPPORTED_MEDIA_TYPE, DEVICE_UNAVAILABLE)
def reconcile(_body: ReconcileBody, service: Service) -> Reconciliation:
    """Repair the differences shown by /v1/drift; answers when done."""
    return Reconciliation.of(None, service.reconcile())
