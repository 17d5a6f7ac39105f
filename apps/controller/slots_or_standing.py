"""``sharing: auto``: chooses between a standing topology and slots by expected traffic.

Weeks are planned in a process of their own, and no change waits for a week. While a topology
stands, every periodic round is weighed against a week of slots requested by an earlier round. While
slots are on, a standing topology is weighed against each new week as soon as the week is planned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from apps.controller.planning_loop import PlanningLoop
from apps.controller.slots import Slots, WeekDraft, WeekUnderWay
from apps.planning.rounds import Round
from hydra.policy import CurrentPolicy, Sharing
from hydra.sharing.slots import Week
from hydra.worth import choose_sharing

LOG = logging.getLogger("hydra.slots")


class _NotYet(Exception):
    """The week to weigh is still being planned."""


class SlotsOrStanding:
    """Links the loop and the slots, which do not know each other. For the conductor's thread."""

    def __init__(
        self,
        *,
        policy: CurrentPolicy,
        loop: PlanningLoop,
        slots: Slots,
        notify: Callable[[str], None],
    ) -> None:
        """``notify`` is called with a text when the choice changes."""
        self._policy, self._loop, self._slots, self._notify = policy, loop, slots, notify
        self._asked_for: WeekUnderWay | None = None
        """The week that the last round has requested."""

    async def periodic(self) -> None:
        """A round of monitor and plan. Reconfigure if a change pays, or offer a week of slots, to
        begin when the conductor looks at the slots. No round between a change's stages.
        """
        if self._loop.between_stages:
            return
        done = self._loop.round()
        draft = self._weigh_against_week(done)
        if draft is None:
            await self._loop.act(done)
        else:
            self._slots.offer(draft)

    async def keep_time(self) -> None:
        """Begin the next slot if due. Raises the errors of :meth:`Slots.keep_time`."""
        begin = partial(self._loop.begin_week, given=self._slots.given)
        await self._slots.keep_time(begin, self._take_week)

    def _weigh_against_week(self, done: Round) -> WeekDraft | None:
        """Weigh slots against the round's decision, if the policy leaves the choice open.

        Return the week if slots are chosen. The choice stays unchanged while the week is planned.
        """
        if self._policy.now.sharing is not Sharing.AUTO:
            self._asked_for = None
            return None
        try:
            draft = self._weigh(done, self._week_of_earlier)
        except _NotYet:
            LOG.debug("a week to weigh is still being planned")
            return None
        self._asked_for = None  # the next choice needs a new week
        return draft

    def _week_of_earlier(self) -> WeekDraft | None:
        """The week requested by an earlier round; None if there is no demand.

        Raises PlanError, and _NotYet if the week is still being planned or was requested only now.
        """
        if self._asked_for is None:
            self._asked_for = self._slots.ask(self._loop.begin_week)
        if not self._asked_for.week.done():
            raise _NotYet
        return self._asked_for.draft()

    async def _take_week(self, asked: WeekUnderWay) -> WeekDraft | None:
        """The draft of a week for slots; None if there is no demand, or if slots are to end.

        Raises PlanError.
        """
        policy = self._policy
        by_choice = policy.now.sharing is Sharing.AUTO and policy.given is None
        if not by_choice or not policy.in_force.slotted:
            return asked.draft()
        done = self._loop.round()
        draft = self._weigh(done, asked.draft)
        if policy.choice.sharing is Sharing.BY_DEMAND:
            await self._loop.act(done)
        return draft

    def _weigh(self, done: Round, draft: Callable[[], WeekDraft | None]) -> WeekDraft | None:
        """Choose, and report a changed choice; return the draft if slots are chosen."""
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
            self._notify(words)
        return drafted if choice.sharing is Sharing.SLOTTED else None
