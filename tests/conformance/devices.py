"""The devices for tests of every optical driver. A new driver adds an entry here."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from hydra.model import Login, Plane, PlaneId
from mininet_scenarios.emulators.admin import AdminClient
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.emulators.certificate import CA
from mininet_scenarios.emulators.faults import FaultKind
from mininet_scenarios.emulators.netconfd import Netconfd
from tests.conformance.candidate import Bench, Candidate, Deviation
from tests.conformance.local_devices import PORTS, openflow_bridge, panel
from tests.waiting import PATIENCE_S

REPOSITORY = Path(__file__).parents[2]
SWITCHING_MS = 5.0
COMMON_FAULTS = frozenset(
    {
        FaultKind.REFUSE,
        FaultKind.SILENT,
        FaultKind.PARTIAL,
        FaultKind.STEAL,
        FaultKind.LOSE_REPLY,
        FaultKind.SLOW,
        FaultKind.MUTE,
        FaultKind.DEAD,
    }
)

BAD_LINE = frozenset({FaultKind.GARBLED, FaultKind.HALF_A_LINE})
TL1_FAULTS = (
    COMMON_FAULTS
    | BAD_LINE
    | {
        FaultKind.KILL,
        FaultKind.AUTONOMOUS,
        FaultKind.BLOCKS,
        FaultKind.WRONG_CTAG,
        FaultKind.ECHO,
        FaultKind.IDLE_LOGOUT,
    }
)
SONIC_FAULTS = COMMON_FAULTS | {
    FaultKind.KILL,
    FaultKind.IDLE_LOGOUT,
    FaultKind.NO_LIGHT,
    FaultKind.RESERVED,
}
BULK_FAULTS = frozenset(
    {FaultKind.REFUSE, FaultKind.SILENT, FaultKind.PARTIAL, FaultKind.STEAL, FaultKind.LOSE_REPLY}
)
"""Faults in which a change fails, for variants of a driver that is tested with all other faults,
too.
"""
LOGIN_VARIABLE = "HYDRA_CONFORMANCE_PASSWORD"


def emulated(
    driver: str,
    *arguments: str,
    serial: bool = False,
    options: Mapping[str, object] | None = None,
) -> Callable[[], AbstractContextManager[Bench]]:
    """An emulator in a separate process on a real socket."""
    emulator = EMULATORS[driver]
    user = emulator.user
    login = None if user is None else Login(user, password_env=LOGIN_VARIABLE)

    @contextmanager
    def start() -> Iterator[Bench]:
        command = [sys.executable, "-m", emulator.path]
        command += ["--name", "000042", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        command += ["--ports", f"{PORTS}", "--switching-ms", f"{SWITCHING_MS:g}", *arguments]
        line = f"{tempfile.gettempdir()}/hydra-conformance-{os.getpid()}-{driver}"
        command += ["--serial", line] if serial else []
        with (
            pytest.MonkeyPatch.context() as patch,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as server,
        ):
            patch.setenv(LOGIN_VARIABLE, emulator.password)
            try:
                _, _, address, _, admin = server.stdout.readline().split()
                address = f"serial:{line}" if serial else address
                host, _, port = admin.rpartition(":")
                plane = Plane(
                    PlaneId(0), "p1", driver, address, PORTS, SWITCHING_MS, 100.0, login,
                    options or {},
                )  # fmt: skip
                control = AdminClient(host, int(port))
                yield Bench(plane, admin=control)
            finally:
                server.terminate()
            assert server.wait(PATIENCE_S) == 0

    return start


SERIAL = {Deviation.NO_SECOND_SESSION: "a serial line has one user at a time"}


def template(*, one_by_one: bool = False) -> Callable[[], AbstractContextManager[Bench]]:
    """The example of docs/template-driver.md, on the switch of the example."""
    page = (REPOSITORY / "docs" / "template-driver.md").read_text()
    (plane,) = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])["planes"]
    options = plane["options"]
    if one_by_one:
        options |= {"connect": "patch {ingress} to {output}"}
        options |= {"disconnect": "unpatch {ingress} to {output}"}
        del options["power"]
    return emulated("template", options=options)


def sonic(protocol: str, dialect: str) -> Callable[[], AbstractContextManager[Bench]]:
    """A SONiC switch with one of its protocols, in one of the two vocabularies."""

    @contextmanager
    def start() -> Iterator[Bench]:
        with TemporaryDirectory() as directory:
            arguments = ["--protocol", protocol, "--dialect", dialect, "--directory", directory]
            options = {"transport": protocol, "ca_file": f"{directory}/{CA}"}
            with emulated("sonic-ocs", *arguments, options=options)() as bench:
                yield bench

    return start


def netconfd(datastore: str) -> Callable[[], AbstractContextManager[Bench]]:
    """A real NETCONF server on HydRA's modules, written through this datastore."""

    @contextmanager
    def start() -> Iterator[Bench]:
        with TemporaryDirectory() as directory, Netconfd(Path(directory), datastore) as server:
            server.become_polatis(PORTS)
            options = {"host_key": server.host_key, "stream": "NETCONF"}
            plane = Plane(
                PlaneId(0), "p1", "polatis-netconf", server.address, PORTS, 0.0, 100.0,
                server.login, options,
            )  # fmt: skip
            yield Bench(plane)

    return start


CANDIDATES = [
    Candidate(
        "calient-tl1",
        emulated("calient-tl1"),
        faults=TL1_FAULTS | {FaultKind.NO_LIGHT, FaultKind.RESERVED},
        deviations={Deviation.ITEMS_ARE_MADE_ONE_BY_ONE: "its commands are for one cross-connect"},
    ),
    Candidate(
        "calient-tl1",
        emulated(
            "calient-tl1",
            "--firmware",
            "plain",
            options={"bulk": True},
        ),
        variant="plain-bulk",
        faults=BULK_FAULTS,
    ),
    Candidate(
        "calient-tl1",
        emulated("calient-tl1", "--firmware", "shared", options={"bulk": True}),
        variant="shared-bulk",
        faults=BULK_FAULTS - {FaultKind.SILENT, FaultKind.PARTIAL},
    ),
    Candidate(
        "glimmerglass-tl1",
        emulated("glimmerglass-tl1"),
        faults=TL1_FAULTS - {FaultKind.IDLE_LOGOUT} | {FaultKind.NO_LIGHT},
    ),
    Candidate(
        "glimmerglass-tl1",
        emulated("glimmerglass-tl1", "--firmware", "6.0"),
        variant="system100",
    ),
    Candidate("polatis-netconf", netconfd("candidate"), variant="netconfd"),
    Candidate(
        "polatis-restconf",
        emulated("polatis-restconf"),
        faults=COMMON_FAULTS | {FaultKind.KILL, FaultKind.IDLE_LOGOUT},
    ),
    Candidate(
        "polatis-restconf",
        emulated("polatis-restconf", "--firmware", "old"),
        variant="old",
        faults=BULK_FAULTS,
    ),
    Candidate(
        "polatis-scpi",
        emulated("polatis-scpi"),
        faults=COMMON_FAULTS | BAD_LINE | {FaultKind.KILL},
    ),
    Candidate(
        "polatis-scpi",
        emulated("polatis-scpi", serial=True),
        variant="serial",
        faults=COMMON_FAULTS | BAD_LINE | {FaultKind.KILL},
        deviations=SERIAL,
    ),
    Candidate(
        "polatis-scpi",
        emulated("polatis-scpi", "--firmware", "linewise"),
        variant="linewise",
        faults=BULK_FAULTS | BAD_LINE,
    ),
    Candidate(
        "polatis-tl1",
        emulated("polatis-tl1"),
        faults=TL1_FAULTS,
        marks=(pytest.mark.core("a vendor's driver over its protocol"),),
    ),
    Candidate(
        "polatis-tl1",
        emulated("polatis-tl1", "--firmware", "any"),
        variant="any-to-any",
        faults=BULK_FAULTS | {FaultKind.AUTONOMOUS, FaultKind.IDLE_LOGOUT},
    ),
    Candidate(
        "polatis-tl1",
        emulated("polatis-tl1", serial=True),
        variant="serial",
        faults=TL1_FAULTS,
        deviations=SERIAL,
    ),
    Candidate(
        "manual",
        panel,
        deviations={Deviation.NOT_ON_THE_NETWORK: "people read its tasks, it has no address"},
    ),
    Candidate("openflow-xc", openflow_bridge, marks=(pytest.mark.ovs,)),
    *(
        Candidate(
            "sonic-ocs",
            sonic("gnmi", dialect),
            variant=f"gnmi-{dialect}",
            faults=SONIC_FAULTS,
            deviations={Deviation.FIRST_AND_LAST_RACE: "its patches leave no table empty"},
        )
        for dialect in ("working-group", "molex")
    ),
    Candidate(
        "sonic-ocs",
        sonic("restconf", "molex"),
        variant="restconf-molex",
        faults=SONIC_FAULTS,
    ),
    Candidate("template", template(), faults=COMMON_FAULTS),
    Candidate(
        "template",
        template(one_by_one=True),
        variant="one-by-one",
        faults=COMMON_FAULTS,
        deviations={Deviation.ITEMS_ARE_MADE_ONE_BY_ONE: "its commands are for one cross-connect"},
    ),
]
