"""Commands that change the topology: apply, for people, and reconfigure, for scripts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import click

from apps.cli.client import ControllerClient, url_option
from apps.cli.command import Command
from apps.cli.network import OVER, print_reconfiguration
from apps.cli.output import CommandError, insist, json_option, print_json, print_outcome, warn
from apps.cli.parameters import FiniteRange, with_options
from apps.cli.patience import progress_bar
from apps.cli.planning import (
    body_with_demand,
    demand_as_measured,
    planning_options,
    print_plan,
    print_stages,
)
from apps.cli.schedule import PATH as SCHEDULE
from apps.cli.schedule import print_slots
from apps.cli.wanted_topology import read_topology
from hydra.lifecycle import ReconfigurationState
from hydra.policy import Rotation
from hydra_hybrid_network_client.errors import JsonObject
from hydra_hybrid_network_client.requests import WAIT_S, resource

_PATH: Final = "/v1/reconfigurations"
_DRY_RUN: Final = "/v1/plan"
_LOOK_S: Final = 0.1
_COURSE: Final = [state for state in ReconfigurationState if state not in OVER]
"""States of a reconfiguration under way, in order."""


@click.command(
    cls=Command,
    examples=[
        "hydra apply --demand r1:r2=80",
        "hydra apply --topology circuits.yaml",
        "hydra apply --schedule rotornet --slot-s 2",
        "hydra apply --yes --json | jq .state",
    ],
)
@with_options(planning_options)
@click.option(
    "--topology",
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=read_topology,
    help="Make the circuits in this file (YAML or JSON), whatever the demand; or follow its slots.",
)
@click.option(
    "--schedule",
    "rotation",
    type=click.Choice([rotation.value for rotation in Rotation]),
    help="Join all pairs of racks in turn, by this schedule.",
)
@click.option(
    "--slot-s",
    type=FiniteRange(min=0, min_open=True),
    help="Length of a slot of --schedule, in s. Without: policy.slots.slot_s.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def apply(url: str, as_json: bool, yes: bool, **options: Any) -> None:
    """Show the planned change, ask, and carry out the change.

    Circuits are planned for a demand, or listed in a file (--topology). A schedule, listed in the
    file or named (--schedule), repeats in place of the policy until `hydra schedule --end`, another
    schedule, or the controller's next start.

    The demand of the dry run counts, even if the measured demand changes later. If the network and
    the plan have changed before your answer, the new plan is shown and the question is repeated.
    The command waits for the end of the reconfiguration. Exit status 1 if the reconfiguration
    failed; 0 if only some circuits failed, with a list of the failed circuits. If the plan changes
    nothing, the command says so, without a question or a record.
    """
    schedule = _schedule(options)
    if schedule is not None:
        _follow_schedule(url, as_json, yes, schedule)
        return
    with ControllerClient(url) as client:
        body = body_with_demand(client, options)
        if options["topology"] is not None:
            body["topology"] = options["topology"]
        elif not options["demand"]:
            body |= demand_as_measured(client)
        dry_run = client.post(_DRY_RUN, body)
        if _is_nothing(dry_run):
            text = "nothing to do: the network is as wanted"
            print_outcome({"state": "nothing-to-do", "plan": dry_run}, text, as_json)
            return
        _shown(dry_run, as_json, yes)
        while not yes and client.get("/v1/topology")["epoch"] != dry_run["current_epoch"]:
            agreed, dry_run = dry_run, client.post(_DRY_RUN, body)
            if _comes_to(dry_run) != _comes_to(agreed):
                warn("the network has changed meanwhile")
                _shown(dry_run, as_json, yes)
        document = _followed(client, client.post(_PATH, body)["id"])
    _print(document, as_json)


def _schedule(options: dict[str, Any]) -> JsonObject | None:
    """The schedule asked for, in the form of a request; None if a topology is asked for.

    Takes the options of schedules out of ``options``. Raises UsageError.
    """
    name, slot_s = options.pop("rotation"), options.pop("slot_s")
    listed = options["topology"] is not None and "slots" in options["topology"]
    if slot_s is not None and name is None:
        raise click.UsageError("--slot-s is the length of a named schedule's slots: add --schedule")
    if name is None and not listed:
        return None
    names = {"racks": "--rack", "planes": "--plane", "use_planes": "--use-plane"}
    others = sorted(key for key in options if options[key] and not (listed and key == "topology"))
    if others:
        option = names.get(others[0], "--" + others[0].replace("_", "-"))
        raise click.UsageError(f"a schedule is not planned: leave out {option}")
    return options["topology"] if listed else {"name": name, "slot_s": slot_s}


def _follow_schedule(url: str, as_json: bool, yes: bool, schedule: JsonObject) -> None:
    """Show the slots, ask, and have the controller follow them."""
    with ControllerClient(url) as client:
        week = client.put(SCHEDULE, {**schedule, "dry_run": True})
        if not as_json:
            print_slots("Slots", week)
            click.echo(
                f"duty cycle {week['duty_cycle']:.2f}: of each slot, a night of "
                f"{week['night_s'] * 1000:.0f} ms moves circuits and carries nothing"
            )
        if not yes:
            insist("Follow this schedule?")
        week = client.put(SCHEDULE, schedule)
    text = "the schedule begins: `hydra schedule` shows its slot, `hydra schedule --end` ends it"
    print_outcome(week, text, as_json)


def _shown(dry_run: JsonObject, as_json: bool, yes: bool) -> JsonObject:
    """The dry run, shown to the user and confirmed."""
    if not as_json:
        print_plan(dry_run)
    if not yes:
        insist("Apply the changes?")
    return dry_run


def _is_nothing(dry_run: JsonObject) -> bool:
    """True if a plan touches no circuit, no pair and no rule."""
    keys = ("connect", "disconnect", "affected_pairs", "retagged_ports", "rules")
    return not any(dry_run[key] for key in keys)


def _comes_to(dry_run: JsonObject) -> list[object]:
    """The parts of a dry run that people agree to: circuits, paths regardless of VLAN-IDs, and
    risks.
    """
    paths = [{**path, "vlan": None} for path in dry_run["paths"]]
    return [dry_run["connect"], dry_run["disconnect"], paths, dry_run["at_risk"]]


def _followed(client: ControllerClient, identifier: str) -> JsonObject:
    """Wait for the end of a reconfiguration and return its document; on a terminal, show a bar of
    substeps.
    """
    with progress_bar() as bar:
        task = bar.add_task("queued", total=len(_COURSE))
        while True:
            document = client.get(resource(_PATH, identifier))
            state = ReconfigurationState(document["state"])
            done = len(_COURSE) if state in OVER else _COURSE.index(state)
            stage = f"stage {document['stages_done'] + 1}, " if document["stages_done"] else ""
            bar.update(task, completed=done, description=f"{stage}{state.value}")
            if state in OVER:
                return document
            time.sleep(_LOOK_S)


@click.command(
    cls=Command,
    examples=["hydra reconfigure --demand r1:r2=80 --wait", "hydra reconfigure --stages"],
)
@with_options(planning_options)
@click.option("--wait", is_flag=True, help=f"Wait up to {WAIT_S} s for the end of the change.")
@click.option("--stages", is_flag=True, help="List the stages instead, and change nothing.")
def reconfigure(url: str, as_json: bool, wait: bool, stages: bool, **options: Any) -> None:
    """Change the topology to suit a demand.

    Exit status 1 if the reconfiguration failed; 0 if only some circuits failed, with a list of
    the failed circuits.
    """
    if wait and stages:
        raise click.UsageError("--stages changes nothing: leave out --wait")
    with ControllerClient(url) as client:
        if stages:
            found = client.post(_DRY_RUN, body_with_demand(client, options))["stages"]
            if as_json:
                print_json({"stages": found})
            else:
                print_stages(found)
            return
        document = client.post(_PATH, body_with_demand(client, options), wait=wait)
    _print(document, as_json)


@click.command(cls=Command, examples=["hydra stop 3f2a9c41d0be"])
@url_option
@json_option
@click.argument("reconfiguration")
def stop(url: str, as_json: bool, reconfiguration: str) -> None:
    """Stop a large change after the stage under way.

    The network stays in the state after that stage, and later decisions start from there. A change
    in its last stage, or without stages, goes on to the end.
    """
    with ControllerClient(url) as client:
        document = client.delete(resource(_PATH, reconfiguration))
    print_outcome(document, f"{document['id']} ends after the stage under way", as_json)


@click.command(cls=Command, examples=["hydra pause 3f2a9c41d0be"])
@url_option
@json_option
@click.argument("reconfiguration")
def pause(url: str, as_json: bool, reconfiguration: str) -> None:
    """Pause a large change after the stage under way, until `hydra resume` or `hydra stop`.

    Periodic decisions are paused, too; reservations, repairs and people's requests are not.
    """
    _pause(url, as_json, reconfiguration, paused=True, text="waits after the stage under way")


@click.command(cls=Command, examples=["hydra resume 3f2a9c41d0be"])
@url_option
@json_option
@click.argument("reconfiguration")
def resume(url: str, as_json: bool, reconfiguration: str) -> None:
    """Resume a paused large change."""
    _pause(url, as_json, reconfiguration, paused=False, text="goes on")


def _pause(url: str, as_json: bool, reconfiguration: str, *, paused: bool, text: str) -> None:
    with ControllerClient(url) as client:
        document = client.patch(resource(_PATH, reconfiguration), {"paused": paused})
    print_outcome(document, f"{document['id']} {text}", as_json)


def _print(document: JsonObject, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print_reconfiguration(document)
    if document["state"] in {"failed", "refused"}:
        raise CommandError(
            f"reconfiguration {document['id']} {document['state']}: {document['reason']}"
        )
