"""The controller's role at each switch: master or slave (OpenFlow 1.3.5, section 6.3.6)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from apps.openflow.asking import Encode
from apps.openflow.interface import PortInfo, SwitchConnection
from apps.openflow.replies import Reply
from apps.openflow.requests import Answer, Pending
from apps.openflow.tables import Tables, failures
from drivers.codecs.openflow.messages import (
    encode_barrier,
)
from drivers.codecs.openflow.rules import (
    NO_GENERATION,
    ROLE_MASTER,
    ROLE_NO_CHANGE,
    ROLE_SLAVE,
    encode_role_request,
)
from hydra.failures import Failure, FailureKind
from hydra.model import DatapathId

LOG = logging.getLogger("hydra.fleet")
_MOST = 0.5
"""Share of switches whose answers set the deadline for a change of roles, if the caller hurries."""
_MOST_TRIES = 5
"""Number of attempts to become a switch's slave. A further attempt is needed if the switch got
another master meanwhile.
"""


class Roles(Tables):
    """Role of the controller at its switches.

    While this controller does not lead, the controller becomes the slave of each connecting switch,
    and sends nothing else.
    """

    def switch_connected(
        self, datapath: int, connection: SwitchConnection, ports: Mapping[int, PortInfo]
    ) -> None:
        if self._over():
            self._stand_aside(DatapathId(datapath), connection)
        super().switch_connected(datapath, connection, ports)

    def stand_aside(self) -> None:
        """Become the slave of all switches, when leadership ends; returns at once."""
        with self._lock:
            connections = {dp: switch.connection for dp, switch in self._switches.items()}

        def stand_aside() -> None:
            for datapath, connection in connections.items():
                self._stand_aside(datapath, connection)

        self._post(stand_aside)

    def _stand_aside(
        self, datapath: DatapathId, connection: SwitchConnection, tries: int = _MOST_TRIES
    ) -> None:
        """Become a switch's slave, with the generation known to the switch; in the hub's thread.

        The switch would refuse an earlier generation; a slave has no right to set a later one.
        """
        if datapath not in self._names:
            return  # leave strangers alone

        def on_reply(answered: Reply[Answer]) -> None:
            answer = answered.result()
            if isinstance(answer, Failure):
                self._note_no_slave(answer)
                return
            if not self._over():
                return  # this controller leads by now, and is about to become the switch's master
            known = int.from_bytes(answer, "big")
            generation = 0 if known == NO_GENERATION else known
            asked_role = self._ask_for_role(datapath, connection, ROLE_SLAVE, generation)
            asked_role.add_done_callback(done)

        def done(answered: Reply[Answer]) -> None:
            answer = answered.result()
            if not isinstance(answer, Failure):
                LOG.debug("%s: the switch has this controller as slave", self._name(datapath))
            elif answer.kind is FailureKind.TAKEN_OVER and tries > 1:
                self._stand_aside(datapath, connection, tries - 1)
            else:
                self._note_no_slave(answer)

        asked = self._ask_for_role(datapath, connection, ROLE_NO_CHANGE, 0)
        asked.add_done_callback(on_reply)

    def _ask_for_role(
        self, datapath: DatapathId, connection: SwitchConnection, role: int, generation: int
    ) -> Reply[Answer]:
        """Ask for a role; the reply is the generation as bytes, in the hub's thread.

        The request is not fenced by leadership: only the role of a master permits changes of rules.
        """
        xid, reply = self._next_xid(), Reply[Answer]()
        with self._lock:
            self._pending[xid] = Pending(datapath, connection, reply)
        connection.send(_role_request(role, generation, xid))
        return reply

    @staticmethod
    def _note_no_slave(failure: Failure) -> None:
        if failure.kind is not FailureKind.UNKNOWN:  # else the connection has ended
            LOG.warning("%s does not have this controller as slave: %s", failure.subject, failure)

    def generations(
        self, datapaths: Collection[DatapathId], timeout_s: float, *, hurries: bool = False
    ) -> dict[DatapathId, int | Failure]:
        """The generation known to each switch (OpenFlow 1.3.5, section 6.3.6), or the failure to
        answer.
        """
        answers = self._role_answers(
            datapaths,
            lambda _datapath, _ports, xid: _role_request(ROLE_NO_CHANGE, 0, xid),
            timeout_s,
            hurries=hurries,
        )
        return {
            datapath: int.from_bytes(answer, "big") if isinstance(answer, bytes) else answer
            for datapath, answer in answers.items()
        }

    def become_master(
        self, generations: Mapping[DatapathId, int], timeout_s: float, *, hurries: bool = False
    ) -> dict[DatapathId, Failure | None]:
        """Fence off the switches' earlier controller by a later generation.

        A switch's earlier master can't change rules any more. Returns failures as
        :meth:`~apps.openflow.tables.Tables.apply` does. With ``hurries``, once half of the switches
        have answered, far later switches are left alone until they answer.
        """
        return failures(
            self._role_answers(
                generations,
                lambda datapath, _ports, xid: _role_request(
                    ROLE_MASTER, generations[datapath], xid
                ),
                timeout_s,
                hurries=hurries,
            )
        )

    def _role_answers(
        self, datapaths: Collection[DatapathId], encode: Encode, timeout_s: float, *, hurries: bool
    ) -> dict[DatapathId, Answer]:
        if not hurries:
            return self._request(datapaths, encode, timeout_s)
        give_up = self._answer_or_set_aside
        return dict(
            self._in_turn(datapaths, encode, timeout_s, hurries=True, most=_MOST, give_up=give_up)
        )


def _role_request(role: int, generation: int, xid: int) -> bytes:
    """A request with a barrier: a switch that refuses the request sends only the error."""
    return encode_role_request(role, generation, xid) + encode_barrier(xid)
