"""Check of the light at an ingress port before it is connected: too much harms devices behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pydantic import BaseModel, ConfigDict, Field

from hydra.errors import DeviceError
from hydra.model import CrossConnect, Plane


class InputPowerOptions(BaseModel):
    """``options`` of a plane whose switch reads power."""

    model_config = ConfigDict(extra="forbid")

    max_input_dbm: float | None = Field(None, ge=-60, le=40)
    """Largest power at an ingress port about to be connected; None: the power is not read."""


def max_input_dbm(plane: Plane) -> float | None:
    """The option of a plane whose options have been checked."""
    given = {name: plane.options.get(name) for name in InputPowerOptions.model_fields}
    return InputPowerOptions.model_validate(given).max_input_dbm


def check_input_power(
    device: str,
    limit_dbm: float | None,
    added: Collection[CrossConnect],
    read: Callable[[Collection[int]], Mapping[int, float | None]],
) -> None:
    """Raises DeviceError, before anything moves, for an ingress port with too much light.

    ``read`` gives the power at ports in dBm. A port without a monitor passes.
    """
    if limit_dbm is None or not added:
        return
    for port, dbm in sorted(read({new.ingress for new in added}).items()):
        if dbm is not None and dbm > limit_dbm:
            raise DeviceError(
                device,
                f"port {port} receives {dbm:+.2f} dBm, more than options.max_input_dbm "
                f"({limit_dbm:+.2f}): nothing was moved; attenuate the light, or raise the limit",
            )
