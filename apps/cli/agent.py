"""``hydra agent``: reports the bytes waiting in a server's sockets."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Mapping, Sequence

import click

from apps.agent.buffers import send_buffers
from apps.agent.loop import Agent
from apps.agent.namespaces import ServerSockets
from apps.agent.scheduler import OutputScheduler
from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.output import CommandError, UnreachableError
from apps.cli.parameters import FiniteRange
from apps.process import logs
from hydra.demand.backlog import BYTES_PER_MB
from hydra_hybrid_network_client.requests import resource

LOG = logging.getLogger("hydra.agent")


@click.command(
    cls=Command,
    examples=[
        "HYDRA_TOKEN_FILE=/etc/hydra/agent.token hydra agent --url https://10.0.0.5:8443",
        "hydra agent h11 --socket-buffer-mb 100 --interface eth0",
    ],
)
@click.argument("server", default=socket.gethostname)
@click.option(
    "--socket-buffer-mb",
    type=FiniteRange(0.1, 2000),
    help=(
        "Enlarge the send buffers of new TCP sockets to this size while the agent runs, so that "
        "the sockets' backlog shows. Without: the buffers stay as they are."
    ),
)
@click.option(
    "--interface",
    help=(
        "Schedule the server's output here, if the controller's policy asks for output "
        "scheduling: a part of the link for racks joined by circuits, the rest for other racks. "
        "Without: no scheduling."
    ),
)
@url_option
def agent(server: str, socket_buffer_mb: float | None, interface: str | None, url: str) -> None:
    """Report the bytes waiting in this server's sockets to the controller, by destination rack.

    SERVER is the server's name in the fabric's file, by default the host name. If the controller
    asks for tokens, create the agent's token with `hydra token create SERVER --role agent`. The
    agent runs until stopped, and waits for an absent controller.
    """
    logs.set_up("text", "info")
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(ControllerClient(url))
        sockets = stack.enter_context(ServerSockets())
        if socket_buffer_mb is not None:
            stack.enter_context(send_buffers(int(socket_buffer_mb * BYTES_PER_MB)))
            if ports := sockets.listening():
                LOG.warning(
                    "ports %s were open before the agent started: connections accepted by these "
                    "programs keep small send buffers, so that little of their backlog shows; "
                    "start the agent before such programs, or restart the programs",
                    ", ".join(map(str, ports)),
                )

        def schedule(prefixes: Mapping[str, Sequence[str]]) -> OutputScheduler:
            return stack.enter_context(OutputScheduler(str(interface), prefixes))

        loop = Agent(
            resource("/v1/agents", server),
            client,
            sockets,
            (UnreachableError, CommandError),
            None if interface is None else schedule,
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: loop.stop())
        loop.run()
    LOG.info("stopped")
