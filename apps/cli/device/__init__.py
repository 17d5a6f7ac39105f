"""``hydra device``: one optical switch or ToR at a time, for an operator at the rack.

Speaks to the devices of a configuration file through the controller's own drivers. The controller
need not run; the journal of a running controller says which circuits are the controller's.
"""

from __future__ import annotations

import click

from apps.cli.command import Group
from apps.cli.device.change import connect, disconnect
from apps.cli.device.look import alarms, list_devices, power, show
from apps.cli.device.selftest import selftest
from apps.cli.device.tasks import confirm, tasks


@click.group(
    cls=Group,
    examples=["hydra device list --config fabric.yaml", "hydra device connect --help"],
)
def device() -> None:
    """Work on optical switches and ToRs directly, without a controller.

    Devices have the names of the planes and racks in the configuration file. If the controller's
    journal is at hand, circuits of the controller are only touched with --force.
    """


for _command in (list_devices, show, connect, disconnect, power, alarms, selftest, tasks, confirm):
    device.add_command(_command)
