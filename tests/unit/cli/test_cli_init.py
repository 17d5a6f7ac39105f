"""``hydra init``: its files pass ``hydra check``, for every kind of fabric."""

import errno
import os
import re

import pytest
import yaml
from click.testing import CliRunner

from apps.cli import hydra
from apps.process.configuration import load_configuration
from drivers.registry import OPTICAL, TOR
from hydra.model import SubstrateKind
from mininet_scenarios.emulators.catalogue import EMULATORS
from mininet_scenarios.testbed.layout import layout
from mininet_scenarios.testbed.suitable import OCS_DRIVERS, check_suitable

from . import CONFIGS

QUESTIONS = 10
NEEDS_OPTIONS = {"template": "options.cross_connects: field required"}
"""Drivers whose settings do not fit a single-line question, and the problem that `hydra check`
finds then.
"""
COMBINATIONS = [
    *((substrate, "ovs-ovsdb", plane) for substrate in ("dual-homed-vlan", "single-homed-vlan")
      for plane in OPTICAL),
    *(("single-homed-openflow", "openflow", plane) for plane in OPTICAL),
    *(("dual-homed-vlan", tor, "polatis-scpi") for tor in TOR if tor != "openflow"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("substrate", "tor", "plane"), COMBINATIONS)
def test_what_it_writes_can_be_used(run, here, substrate, tor, plane):
    options = ("--substrate", substrate, "--tor-driver", tor, "--plane-driver", plane)
    done = run("init", "--defaults", *options)
    assert (here / "fabric.yaml").exists()
    if plane in NEEDS_OPTIONS:
        assert done.exit_code == 1
        assert NEEDS_OPTIONS[plane] in done.stderr
        assert "correct the file, then: hydra check fabric.yaml" in done.stderr
        return
    assert done.exit_code == 0, done.output
    assert run("check", "fabric.yaml").exit_code == 0
    fabric = load_configuration(here / "fabric.yaml").fabric
    assert (fabric.substrate.value, len(fabric.racks), len(fabric.planes)) == (substrate, 4, 2)


@pytest.mark.parametrize(
    ("network", "racks", "first", "last"),
    [
        ("10.0.0.0/8", 300, "10.0.1.1/8", "10.1.44.1/8"),
        ("10.128.0.0/9", 300, "10.128.1.1/9", "10.129.44.1/9"),
        ("172.16.0.0/16", 255, "172.16.1.1/16", "172.16.255.1/16"),
        ("192.168.64.0/18", 63, "192.168.65.1/18", "192.168.127.1/18"),
    ],
)
def test_each_rack_has_addresses_of_its_own(run, here, network, racks, first, last):
    done = run("init", "--defaults", "--network", network, "--racks", str(racks))
    assert done.exit_code == 0, done.output
    fabric = load_configuration(here / "fabric.yaml").fabric
    addresses = [str(rack.servers[0].addresses[0]) for rack in fabric.racks]
    assert (addresses[0], addresses[-1], len(set(addresses))) == (first, last, racks)


def test_ten_questions_are_asked_and_each_has_an_option(here):
    asked = CliRunner().invoke(hydra, ["init", "lab.yaml"], input="\n" * QUESTIONS)
    assert asked.exit_code == 0, asked.output
    assert len(re.findall(r"\[[^\]]+\]: ", asked.stdout)) == QUESTIONS
    options = hydra.get_command(None, "init").params
    assert sum(getattr(option, "prompt", None) is not None for option in options) == QUESTIONS
    run = CliRunner().invoke(hydra, ["init", "--defaults"])
    assert run.exit_code == 0
    assert (here / "lab.yaml").read_text() == (here / "fabric.yaml").read_text()


def test_the_substrate_suggests_the_driver_of_its_tors(here):
    answers = "\nsingle-homed-openflow\n" + "\n" * (QUESTIONS - 2)
    done = CliRunner().invoke(hydra, ["init"], input=answers)
    assert done.exit_code == 0, done.output
    racks = yaml.safe_load((here / "fabric.yaml").read_text())["racks"]
    assert racks[0]["tor"]["driver"] == "openflow"


@pytest.mark.parametrize("substrate", [kind.value for kind in SubstrateKind])
@pytest.mark.parametrize(("racks", "servers", "planes"), [(6, 3, 2), (100, 2, 100), (100, 100, 1)])
def test_an_emulated_fabric_can_be_emulated(run, here, substrate, racks, servers, planes):
    """Also with the longest names; there are no questions about devices."""
    done = CliRunner().invoke(
        hydra, ["init", "--emulated"], input=f"\n{substrate}\n{racks}\n{servers}\n\n{planes}\n"
    )
    assert done.exit_code == 0, done.output
    assert len(re.findall(r"\[[^\]]+\]: ", done.stdout)) == QUESTIONS - 4
    assert "as root: python -m mininet_scenarios.testbed up fabric.yaml" in done.stdout
    fabric = load_configuration(here / "fabric.yaml").fabric
    assert (fabric.substrate.value, len(fabric.racks)) == (substrate, racks)
    check_suitable(fabric, layout(fabric, "tcp:127.0.0.1:6653", 300))


def test_an_emulated_fabric_may_have_each_optical_switch_that_the_testbed_emulates(run, here):
    """All but `template`: whose words nobody can be asked for in a line."""
    drivers = sorted({*OCS_DRIVERS} - {*NEEDS_OPTIONS})
    options = [f"--plane-driver={driver}" for driver in drivers]
    planes = f"--planes={len(drivers)}"
    done = run("init", "--emulated", "--defaults", planes, *options)
    assert done.exit_code == 0, done.output
    fabric = load_configuration(here / "fabric.yaml").fabric
    check_suitable(fabric, layout(fabric, "tcp:127.0.0.1:6653", 300))
    assert [plane.driver for plane in fabric.planes] == drivers
    # The emulators' logins are the file's, with the passwords that are printed.
    for plane in fabric.planes:
        emulator, login = EMULATORS[plane.driver], plane.login
        assert emulator.user == (login and login.username)
        if login:
            assert f" {login.password_env}={emulator.password} " in done.stdout


@pytest.mark.parametrize("driver", ["template", "manual"])
def test_devices_that_the_testbed_does_not_emulate_are_refused(run, here, driver):
    done = run("init", "--emulated", "--defaults", "--plane-driver", driver)
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert f"plane-driver {driver}: an emulated fabric has calient-tl1 or glimmerglass-tl1" in said
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "driver"),
    [*(("--plane-driver", each) for each in OPTICAL if each not in {"manual", "template"}),
     *(("--tor-driver", each) for each in TOR)],
)  # fmt: skip
def test_example_addresses_have_the_usual_port_of_the_protocol(run, here, option, driver):
    """The port that the devices' page names under transport."""
    substrate = ["--substrate", "single-homed-openflow"] if driver == "openflow" else []
    assert run("init", "--defaults", option, driver, *substrate).exit_code == 0
    fabric = load_configuration(here / "fabric.yaml").fabric
    device = fabric.planes[0] if option == "--plane-driver" else fabric.racks[0].tor
    port = device.address.rpartition(":")[2]
    page = (CONFIGS.parent / "docs" / "devices.md").read_text()
    table = page[page.index("## ToR switches") :] if option == "--tor-driver" else page
    transport = re.search(rf"^\| `{driver}` \| ([^|]*)", table, re.MULTILINE)[1]
    named = re.findall(r"\d{2,5}", transport)
    assert port in named or not named


def test_a_file_of_answers_is_taken_and_options_come_first(run, here):
    (here / "answers.yaml").write_text("racks: 6\nplanes: 3\nplane-driver: calient-tl1\n")
    done = run("init", "--answers", "answers.yaml", "--defaults", "--racks", "8")
    assert done.exit_code == 0, done.output
    fabric = load_configuration(here / "fabric.yaml").fabric
    assert (len(fabric.racks), len(fabric.planes)) == (8, 3)
    assert fabric.planes[0].driver == "calient-tl1"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ("colour: red\n", "keys are name, substrate, racks"),
        ("- 1\n", "write lines"),
        ("racks: many\n", "'many' is not a valid integer range"),
        ("racks: [4, 8]\n", "racks: write text or a number"),
        ("racks:\n", "racks: write text or a number"),
        ("racks: .inf\n", "'inf' is not a valid integer range"),
        ("servers: 2.5\n", "'2.5' is not a valid integer range"),
        ("name: {a: b}\n", "name: write text or a number"),
        ("plane-address: [null]\n", "plane-address: write text, a number, or a list of these"),
    ],
)
def test_bad_answers_are_told(run, here, answers, why):
    (here / "answers.yaml").write_text(answers)
    done = run("init", "--answers", "answers.yaml", "--defaults")
    assert done.exit_code == 2
    assert why in " ".join(done.stderr.split())
    assert not (here / "fabric.yaml").exists()


def test_nothing_is_overwritten(run, here):
    (here / "fabric.yaml").write_text("mine")
    done = run("init", "--defaults")
    assert (done.exit_code, (here / "fabric.yaml").read_text()) == (1, "mine")
    assert "name another file, or remove this file" in done.stderr


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("fabric.yaml", "fabric.yaml exists; name another file"),
        ("link.yaml", "link.yaml exists; name another file"),
        ("none/fabric.yaml", "none is no folder that you may write to"),
    ],
)
def test_a_file_that_can_not_be_made_is_told_before_the_questions(here, file, why):
    (here / "fabric.yaml").write_text("mine")
    (here / "link.yaml").symlink_to("nowhere")
    done = CliRunner().invoke(hydra, ["init", file])
    assert (done.exit_code, done.stdout) == (1, "")
    assert why in " ".join(done.stderr.split())


def test_a_full_disk_leaves_no_part_of_the_file(run, here, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run("init", "--defaults")
    assert done.exit_code == 1
    assert done.stderr == "Error: fabric.yaml can't be written: No space left on device\n"
    assert list(here.iterdir()) == []


def test_a_network_without_room_is_told(run):
    done = run("init", "--defaults", "--network", "10.0.0.0/22", "--racks", "4")
    assert done.exit_code == 2
    assert "10.0.0.0/22 has room for 3 racks" in done.stderr


def test_devices_of_each_driver_have_a_password_of_their_own(run, here):
    drivers = ["--tor-driver=ibm-g8264", "--plane-driver=calient-tl1", "--plane-driver=polatis-tl1"]
    assert run("init", "--defaults", *drivers).exit_code == 0
    fabric = load_configuration(here / "fabric.yaml").fabric
    devices = [fabric.racks[0].tor, *fabric.planes]
    names = ["IBM_G8264_PASSWORD", "CALIENT_TL1_PASSWORD", "POLATIS_TL1_PASSWORD"]
    assert [device.login.password_env for device in devices] == names


@pytest.mark.parametrize(
    ("question", "wrong", "why", "right"),
    [
        ("tor", "10.1.0.{rack}", "'10.1.0.1' is not a device address", "10.1.0.{rack}:6640"),
        ("tor", "10.1.0.{rak}:6640", "did you mean 'rack'?", "10.1.0.{rack}:6640"),
        ("plane", "10.2.0.{plane}", "'10.2.0.1' is not host:port", "10.2.0.{plane}:5025"),
        ("plane", "10.2.0.{plane:5025", "is not a template", "10.2.0.{plane}:5025"),
    ],
)
def test_an_address_that_the_driver_refuses_is_asked_for_again(here, question, wrong, why, right):
    before, after = (6, 3) if question == "tor" else (9, 0)
    lines = "\n" * before + f"{wrong}\n{right}\n" + "\n" * after
    done = CliRunner().invoke(hydra, ["init"], input=lines)
    assert done.exit_code == 0, done.output
    assert why in done.output
    assert f'address: "{right}"' in (here / "fabric.yaml").read_text()


def test_only_drivers_of_the_substrate_are_offered(here):
    answers = "\n" * 5 + "openflow\n" + "\n" * (QUESTIONS - 5)
    done = CliRunner().invoke(hydra, ["init"], input=answers)
    assert done.exit_code == 0, done.output
    assert "'openflow' is not one of" in done.output


MIXED = ["polatis-scpi", "calient-tl1", "calient-tl1"]
ADDRESSES = ["10.9.0.1:5025", "10.9.0.2:3082", "10.9.0.3:3082"]
OF_PLANES = [f"--plane-driver={driver}" for driver in MIXED]


def planes(here):
    fabric = load_configuration(here / "fabric.yaml").fabric
    return [(plane.name, plane.driver, plane.address) for plane in fabric.planes]


@pytest.mark.parametrize("way", ["options", "answers", "questions"])
def test_planes_may_have_different_drivers(run, here, way):
    """By an option for each plane, by a file of answers, or by a question for each plane."""
    if way == "options":
        addresses = [f"--plane-address={address}" for address in ADDRESSES]
        done = run("init", "--defaults", "--planes", "3", *OF_PLANES, *addresses)
    elif way == "answers":
        answers = {"planes": 3, "plane-driver": MIXED, "plane-address": ADDRESSES}
        (here / "answers.yaml").write_text(yaml.safe_dump(answers))
        done = run("init", "--defaults", "--answers", "answers.yaml")
    else:
        before = "\n" * (QUESTIONS - 3)
        # The default driver of p3 is that of p2.
        lines = ["3", "each", *MIXED[:2], "", *ADDRESSES]
        done = CliRunner().invoke(hydra, ["init"], input=before + "\n".join([*lines, ""]))
        assert "Driver of p3 [calient-tl1]: " in done.stdout
        assert "Address of p3 [172.17.0.3:3083]: " in done.stdout
    assert done.exit_code == 0, done.output
    names = ["p1", "p2", "p3"]
    assert planes(here) == list(zip(names, MIXED, ADDRESSES, strict=True))


def test_planes_alike_and_side_by_side_share_an_entry(run, here):
    address = "--plane-address=10.9.0.{plane}:5025"
    done = run("init", "--defaults", "--planes", "3", *OF_PLANES, address)
    assert done.exit_code == 0, done.output
    entries = yaml.safe_load((here / "fabric.yaml").read_text())["planes"]
    assert [(entry["names"], "login" in entry) for entry in entries] == [
        ("p1", False),
        ("p[2-3]", True),
    ]
    assert [address for _, _, address in planes(here)] == [f"10.9.0.{n}:5025" for n in (1, 2, 3)]


@pytest.mark.parametrize("option", ["--plane-driver=polatis-scpi", "--plane-address=10.9.0.1:1"])
def test_neither_one_answer_nor_one_for_each_plane_is_refused(run, here, option):
    done = run("init", "--defaults", "--planes", "3", option, option)
    assert done.exit_code == 2
    name = option.partition("=")[0]
    assert f"{name} is given 2 times for 3 planes" in " ".join(done.stderr.split())
    assert list(here.iterdir()) == []


def test_the_page_shows_what_it_writes(run, here):
    assert run("init", "--defaults").exit_code == 0
    page = (CONFIGS.parent / "docs" / "configuration.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(# Written by .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert shown == (here / "fabric.yaml").read_text()
