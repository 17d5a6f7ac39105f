"""/metrics: metrics for Prometheus"""

from __future__ import annotations

from fastapi import Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from apps.rest.routing import Routes

routes = Routes("/metrics")


# Not in the description: Prometheus finds the path by custom, and the format is not JSON.
@routes.on("GET", include_in_schema=False)
def scrape(request: Request) -> Response:
    """Metrics in a format accepted by the caller: Prometheus text, or OpenMetrics."""
    registry: CollectorRegistry = request.app.state.registry
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=media_type)
