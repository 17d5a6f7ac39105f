"""``hydra device tasks`` and ``confirm``: for people at a patch panel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.device.named import find_plane, translated
from apps.cli.output import CommandError, json_option, print_columns, print_json, print_outcome
from apps.cli.wording import moment
from apps.process.configuration import load_configuration
from apps.rest.resources.devices import Task
from drivers.registry import optical_switch
from hydra.roles import TaskBoard, TaskState
from hydra_hybrid_network_client.errors import JsonObject
from hydra_hybrid_network_client.requests import resource

_F = TypeVar("_F", bound=Callable[..., Any])


def _source_options(command: _F) -> _F:
    """Options for the source of tasks: a controller, or the panel's own file."""
    file_option = click.option(
        "--config",
        "config",
        type=click.Path(path_type=Path),
        help="Use the panel's own file, as this configuration names it, instead of a controller.",
    )
    return url_option(file_option(json_option(command)))


@click.command(
    cls=Command,
    examples=["hydra device tasks p1", "hydra device tasks p1 --all --config fabric.yaml"],
)
@click.argument("name", metavar="PLANE")
@click.option("--all", "everything", is_flag=True, help="Also list settled tasks.")
@_source_options
def tasks(name: str, everything: bool, url: str, config: Path | None, as_json: bool) -> None:
    """Show people's open tasks at a patch panel.

    Asks the controller, or with --config reads the panel's own file.
    """
    wanted = list(TaskState) if everything else [TaskState.PENDING]
    if config is None:
        query = "&".join(f"state={state.value}" for state in wanted)
        with ControllerClient(url) as client:
            listed = client.get(f"{resource('/v1/devices', name)}/tasks?{query}")["tasks"]
    else:
        board, shown = _board(config, name)
        with translated():
            listed = [shown(task) for task in board.tasks() if task.state in wanted]
    if as_json:
        print_json(listed)
        return
    print_columns(
        f"Tasks at {name}",
        listed,
        {
            "task>": "id",
            "asked": lambda task: moment(task["created_unix_s"]),
            "state": "state",
            "unplug": lambda task: _described(task["disconnect"]),
            "then plug": lambda task: _described(task["connect"]),
            "note": "note",
        },
    )


@click.command(
    cls=Command,
    examples=[
        "hydra device confirm p1 3",
        'hydra device confirm p1 4 --failed "port 12 is dirty"',
    ],
)
@click.argument("name", metavar="PLANE")
@click.argument("task_id", metavar="TASK", type=click.IntRange(min=1))
@click.option("--failed", metavar="WHY", help="The task was impossible, and nothing has changed.")
@_source_options
def confirm(
    name: str, task_id: int, failed: str | None, url: str, config: Path | None, as_json: bool
) -> None:
    """Confirm that a task at a patch panel was done completely.

    Changes waiting for the task go on at once.
    """
    state, note = (TaskState.DONE, "") if failed is None else (TaskState.FAILED, failed)
    if config is None:
        with ControllerClient(url) as client:
            path = f"{resource('/v1/devices', name)}/tasks/{task_id}"
            settled = client.post(path, {"state": state.value, "note": note})
    else:
        board, shown = _board(config, name)
        with translated():
            settled = shown(board.settle(task_id, state, note))
    print_outcome(settled, f"{name}: task {task_id} {settled['state']}", as_json)


def _board(config: Path, name: str) -> tuple[TaskBoard, Callable[..., JsonObject]]:
    """A panel's task board, and the function that describes a task."""
    loaded = load_configuration(config)
    plane = find_plane(loaded.fabric, name)
    switch = optical_switch(plane, loaded.policy.timeouts.ocs_s)
    if not isinstance(switch, TaskBoard):
        raise CommandError(f"{name} has no tasks: driver {plane.driver} works without people")
    return switch, lambda task: Task.at(loaded.fabric, name, task).model_dump(mode="json")


def _described(pairs: list[JsonObject]) -> str:
    """``1 (r1 hyt-r1-p1) to 18 (r2 hyt-r2-p1)``, a line per pair."""
    return "\n".join(f"{_end(pair, 'ingress')} to {_end(pair, 'egress')}" for pair in pairs) or "-"


def _end(pair: JsonObject, side: str) -> str:
    wired = pair[f"{side}_wired_to"]
    return f"{pair[side]} ({wired})" if wired else str(pair[side])
