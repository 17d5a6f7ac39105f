"""Agents on emulated servers, and a controller reachable by the agents."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from apps.rest.tokens import write_tokens
from hydra.access import Role, make_token
from hydra.policy import Mode
from mininet_scenarios import plain_http
from mininet_scenarios.cycles.names import CycleName
from mininet_scenarios.patience import PATIENCE_S
from mininet_scenarios.stage.controller_client import ControllerClient
from mininet_scenarios.stage.controller_process import ControllerProcess, launch_with
from mininet_scenarios.stage.stage import Job, ScenarioError, Stage
from mininet_scenarios.testbed.management import CONTROLLER_ADDRESS, management_network

_PORT = 8080
_OPERATOR = "operator"
_POLL_S = 0.1


@dataclass(slots=True)
class AgentStage:
    """A controller on the management network; each client has a token."""

    stage: Stage
    process: ControllerProcess
    tokens: Mapping[str, str]
    """Tokens by name: one per server, and the operator's."""
    policy: Mapping[str, Any]
    """Policy of the first start."""

    def ask(
        self, method: str, path: str, *, caller: str = _OPERATOR, **more: Any
    ) -> httpx.Response:
        """Send a request with the token of ``caller``."""
        headers = {"Authorization": f"Bearer {self.tokens[caller]}", **more.pop("headers", {})}
        url = self.process.base_url + path
        with plain_http.client(timeout=PATIENCE_S) as client:
            return client.request(method, url, headers=headers, **more)

    @contextmanager
    def client(self) -> Iterator[ControllerClient]:
        """A client with the operator's token."""
        with ControllerClient(self.process.base_url, self.tokens[_OPERATOR]) as client:
            yield client

    def follow(self, policy: Mapping[str, Any]) -> None:
        """Change the controller's policy, by a reload of the configuration file.

        Raises ScenarioError, with nothing changed, if the change takes a restart.
        """
        document = yaml.safe_load(self.process.config.read_text(encoding="utf-8"))
        self._write({**document["policy"], **policy})
        with self.client() as client:
            if waiting := client.reload(dry_run=True):
                raise ScenarioError(f"{', '.join(waiting)} can't change without another start")
            client.reload()

    def _write(self, policy: Mapping[str, Any]) -> None:
        """Replace the policy in the controller's file."""
        document = yaml.safe_load(self.process.config.read_text(encoding="utf-8"))
        text = yaml.safe_dump({**document, "policy": dict(policy)}, sort_keys=False)
        self.process.config.write_text(text, encoding="utf-8")

    def play(self, cycle: CycleName) -> None:
        """Use ``cycle`` in the controller from now on, in the mode ``on-request``.

        If the present controller can't play the cycle, the controller is restarted, and all agents
        that had reported have to report again. Raises ScenarioError if an agent does not.
        """
        launch, policy = launch_with(cycle), {"mode": Mode.ON_REQUEST.value, **cycle.policy}
        if self.process.launch == launch:
            self.follow(policy)
            return
        agents = self._reporting()
        self._write({**self.policy, **policy})
        self.process.restart(launch)
        deadline_s = time.monotonic() + PATIENCE_S
        while missing := agents - self._reporting():
            if time.monotonic() > deadline_s:
                raise ScenarioError(f"agents on {', '.join(sorted(missing))} report no more")
            time.sleep(_POLL_S)

    def _reporting(self) -> set[str]:
        """Servers whose agents have reported since the controller's start."""
        return {agent["server"] for agent in self.ask("GET", "/v1/agents").json()["agents"]}

    @contextmanager
    def agent(self, server: str, *options: str) -> Iterator[Job]:
        """``hydra agent`` on a server, until the end of the block."""
        token = self.stage.file(f"token-{server}", ".txt")
        token.touch(mode=0o600)
        token.write_text(self.tokens[server])
        hydra = str(Path(sys.executable).with_name("hydra"))
        command = ["env", f"HYDRA_TOKEN_FILE={token}", hydra, "agent", server]
        command += ["--url", self.process.base_url, *options]
        with self.stage.job(server, "agent", command) as job:
            try:
                yield job
            finally:
                job.stop()


@contextmanager
def agent_stage(
    stage: Stage, servers: Sequence[str], policy: Mapping[str, Any]
) -> Iterator[AgentStage]:
    """A controller with the given policy, reachable from ``servers`` by the management network."""
    made = {
        name: make_token(name, role, secrets.token_urlsafe(), time.time())
        for name, role in (
            *((server, Role.AGENT) for server in servers),
            (_OPERATOR, Role.OPERATOR),
        )
    }
    tokens = stage.file("tokens", ".json")
    write_tokens(tokens, [stored for _, stored in made.values()])
    settings = stage.config["controller"] | {
        "rest": f"{CONTROLLER_ADDRESS}:{_PORT}",
        "tokens": str(tokens),
        "journal": str(stage.file("journal", ".db")),
    }
    whole = {**stage.config.get("policy", {}), **policy}
    document = {**stage.config, "controller": settings, "policy": whole}
    config = stage.file("agents", ".yaml")
    config.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    with ExitStack() as stack:
        stack.enter_context(management_network(stage.testbed, servers))
        process = stack.enter_context(ControllerProcess(config))
        known = {name: token for name, (token, _) in made.items()}
        yield AgentStage(stage, process, known, whole)
