"""Differences between what is intended and what is."""

from __future__ import annotations

from pydantic import Field

from apps.rest.models.base import Body, Document
from hydra.reconfiguration.drift import DriftKind


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
