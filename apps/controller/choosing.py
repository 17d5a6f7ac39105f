"""``sharing: auto``: a standing topology or slots, as is expected to carry more.

While a topology stands, every periodic round is weighed against a week of slots. While slots are
on, each new week is weighed against a standing topology, in the day of the last slot of a week.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from apps.controller.loop import Loop
from apps.controller.mover import Mover
from apps.controller.record.ledger import Ledger
from apps.controller.slots import Slots, WeekDraft
from apps.planning.rounds import Round
from hydra.model import Fabric
from hydra.policy import CurrentPolicy, Sharing
from hydra.sharing.slots import Week
from hydra.worth import choose_sharing

LOG = logging.getLogger("hydra.slots")


def slots_of(
    fabric: Fabric,
    policy: CurrentPolicy,
    mover: Mover,
    ledger: Ledger,
    loop: Loop,
    tell: Callable[[str], None],
) -> Slots:
    """The slots of a controller, joined with its loop by the choice between the two."""
    choosing = Choosing(policy, loop, tell)
    slots = Slots(fabric, policy, mover, ledger, choosing.draft_week)
    loop.let_choose(lambda done: choosing.shares_by_slots(done, slots))
    return slots


@dataclass(eq=False, repr=False)
class Choosing:
    """Methods are for the conductor's thread."""

    _policy: CurrentPolicy
    _loop: Loop
    _tell: Callable[[str], None]

    def shares_by_slots(self, done: Round, slots: Slots) -> bool:
        """Weigh slots against the round's decision, if the policy leaves the choice open."""
        if self._policy.now.sharing is not Sharing.AUTO:
            return False
        self._weigh(done, slots.draft)
        return self._policy.choice.sharing is Sharing.SLOTTED

    def draft_week(self, night_s: float) -> WeekDraft | None:
        """A week for slots; None if there is no demand, or if slots that are on are to end.

        Raises PlanError.
        """
        policy = self._policy
        if policy.now.sharing is not Sharing.AUTO or not policy.in_force.slotted:
            return self._loop.draft_week(night_s)
        done = self._loop.round()
        draft = self._weigh(done, lambda: self._loop.draft_week(night_s))
        if policy.choice.sharing is Sharing.BY_DEMAND:
            self._loop.act(done)
        return draft

    def _weigh(self, done: Round, draft: Callable[[], WeekDraft | None]) -> WeekDraft | None:
        """Choose, and tell of a choice that changes; the draft if slots are chosen."""
        drafted: WeekDraft | None = None

        def week() -> Week | None:
            nonlocal drafted
            drafted = draft()
            return None if drafted is None else drafted.week

        before = self._policy.choice
        choice = choose_sharing(self._policy.now, before, done.decision, done.report, week)
        self._policy.choice = choice
        if choice.sharing is not before.sharing:
            words = f"circuits are shared {choice.sharing.value}: {choice.reason}"
            LOG.info("%s", words)
            self._tell(words)
        return drafted if choice.sharing is Sharing.SLOTTED else None
