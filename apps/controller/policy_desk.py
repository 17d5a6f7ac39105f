"""Changes of the policy in force: by the configuration file, by REST, by a signal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from apps.controller.classifier import Classifier
from apps.controller.conductor import Conductor
from apps.controller.slots import Slots
from hydra.config import Loaded
from hydra.config.checks import objection_to
from hydra.config.reload import Reload, amended, reload
from hydra.errors import PlanError
from hydra.model import DatapathId
from hydra.policy import UNWEIGHED, CurrentPolicy, Policy, Sharing
from hydra.reconfiguration.scheduler import Work
from hydra.reconfiguration.switches import Switches

LOG = logging.getLogger("hydra.controller")


class PolicyDesk:
    """Changes the policy. Rooms read the policy when they act; only switches are updated here."""

    def __init__(
        self,
        *,
        loaded: Loaded,
        read_file: Callable[[], Loaded],
        policy: CurrentPolicy,
        slots: Slots,
        classifier: Classifier,
        switches: Switches,
        synchronise: Callable[[], Work[None]],
        conductor: Conductor,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """``read_file`` reads the configuration file again; ``synchronise`` brings late switches to
        the state and the policy.
        """
        self._loaded, self._read_file, self._policy = loaded, read_file, policy
        self._slots, self._classifier, self._switches = slots, classifier, switches
        self._synchronise, self._conductor, self._report = synchronise, conductor, report

    # -- any thread -------------------------------------------------------------------------------

    def reload(self, *, dry_run: bool = False) -> Reload:
        """Read the configuration file again; apply keys that touch no traffic, and report the rest.

        Raises ConfigError if the file can't be used; the present policy then stays in force. Raises
        DeviceUnavailable if changes under way take too long.
        """
        file = self._read_file()
        if dry_run:
            return reload(self._loaded, self._policy.now, file)[1]
        return self._conductor.ask(lambda: self._take_over(file))

    def reload_soon(self) -> None:
        """Reload without waiting, for a signal handler; the log has the outcome."""

        async def take_over() -> None:
            _log(await self._take_over(self._read_file()))

        self._conductor.put(take_over)

    def amend(self, changes: Mapping[str, object]) -> None:
        """Replace values of the policy, until the next start or reload.

        Raises PlanError for values that the file may not combine, or that do not fit the fabric,
        DeviceUnavailable if changes under way take too long.
        """
        self._conductor.ask(lambda: self._amend(changes))

    def share(self, sharing: Sharing) -> None:
        """Share circuits by ``sharing`` from now on, until the next start or reload.

        Raises PlanError for values that the file may not have either, and for impossible slots;
        DeviceUnavailable if changes under way take too long.
        """
        if sharing is Sharing.SLOTTED:
            self._slots.check()
        self._conductor.ask(lambda: self._share(sharing))

    # -- the conductor's thread -------------------------------------------------------------------

    async def _amend(self, changes: Mapping[str, object]) -> None:
        policy, done = amended(self._policy.now, changes)
        self._check(policy)
        for change in done:
            LOG.info("asked for: %s is %s, was %s", change.key, change.after, change.before)
            self._report(f"asked for: {change.key} is {change.after}, was {change.before}")
        await self._follow(policy)

    async def _share(self, sharing: Sharing) -> None:
        policy = replace(self._policy.now, sharing=sharing)
        self._check(policy)
        await self._follow(policy)

    def _check(self, policy: Policy) -> None:
        if (objection := objection_to(policy, self._loaded.fabric)) is not None:
            raise PlanError(objection)

    async def _take_over(self, file: Loaded) -> Reload:
        policy, done = reload(self._loaded, self._policy.now, file)
        await self._follow(policy)
        for words in _sentences(done):
            self._report(words)
        return done

    async def _follow(self, policy: Policy) -> None:
        before, self._policy.now = self._policy.now, policy
        if policy.source_check is not before.source_check:
            # Switches that are not ready get the rules of the new policy once ready.
            self._switches.doubt(self._switches.owned)
            await self._synchronise()
        if policy.sharing is not before.sharing:
            LOG.info("circuits are shared %s, were %s", policy.sharing.value, before.sharing.value)
            self._report(f"circuits are shared {policy.sharing.value}, were {before.sharing.value}")
            self._policy.choice = UNWEIGHED
            self.classify()

    def classify(self, datapaths: Iterable[DatapathId] | None = None) -> None:
        """Bring the class tables of the given switches, or of all, to the policy and to reports."""
        chosen = self._classifier.switches if datapaths is None else datapaths
        self._switches.doubt(self._classifier.bring(chosen, self._switches.ready()))


def _sentences(done: Reload) -> list[str]:
    """Sentences about the outcome of a reload."""
    applied = [
        f"reloaded: {change.key} is {change.after}, was {change.before}" for change in done.applied
    ]
    waiting = [
        f"reloaded: {change.key} is {change.after} after the next start" for change in done.waiting
    ]
    return [*applied, *waiting] or ["reloaded: the configuration has not changed"]


def _log(done: Reload) -> None:
    level = logging.WARNING if done.waiting else logging.INFO
    for words in _sentences(done):
        LOG.log(level, "%s", words)
