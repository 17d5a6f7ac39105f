"""Options for a device of one's own (``--device-driver=… …``), and a browser."""

from __future__ import annotations

import fcntl
import gc
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies
from playwright.sync_api import Browser, Page, expect, sync_playwright

from apps.etcd import gateway
from mininet_scenarios.stage.etcd_members import EtcdMembers
from mininet_scenarios.testbed import sysctl, testbed_lock
from tests import surroundings
from tests.journals import close_all
from tests.waiting import PATIENCE_S

CHROMIUM = "/usr/bin/chromium-headless-shell"
"""Without compositing of windows, a headless browser takes half of the processor time."""
PATIENCE_MS = 1000 * PATIENCE_S
expect.set_options(timeout=PATIENCE_MS)
gateway.PATIENCE_S = PATIENCE_S  # etcd writes to a disk, and waits on a busy machine
RARE_MARKERS = {"quiet": "mark.quiet", "ovs and not quiet and core": "mark.core"}
"""Selections of scripts/run_tests.py with few files of tests: a text that such a file contains."""

# Slowness of a busy machine is no defect; and every run tries the same examples.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("repeatable", _PATIENT, derandomize=True, max_examples=40)
settings.register_profile("explore", _PATIENT, max_examples=2000)
settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle the surroundings; take the machine's testbed for workers with separate networks.

    Each worker has a separate Open vSwitch, but workers share the processors: other test runs wait
    until all workers have ended.
    """
    password = config.getoption("device_password_env")
    keep = [password] if password else []
    if hasattr(config, "workerinput"):
        surroundings.settle(keep=keep)
        return
    home = Path(tempfile.mkdtemp(prefix="hydra-tests-home-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    surroundings.settle(home, keep)
    if any("own_network" in worker for worker in config.getoption("tx")):
        stack = ExitStack()
        stack.enter_context(testbed_lock())
        sysctl.apply()  # buffers belong to the machine: a worker can't enlarge the buffers
        stack.callback(sysctl.restore)
        config.add_cleanup(stack.close)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """If only tests with a rare marker are wanted, import only the files with the marker."""
    marker = RARE_MARKERS.get(config.option.markexpr)
    if marker is None or collection_path.suffix != ".py":
        return None
    return None if marker in collection_path.read_text() else True


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Workers import the same files at the same time: one worker rewrites a file's asserts, and the
    others read the result.
    """
    if not isinstance(collector, pytest.Module) or not hasattr(collector.config, "workerinput"):
        return (yield)
    with collector.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


@pytest.fixture(autouse=True)
def no_journal_stays_open() -> Iterator[None]:
    yield
    close_all()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collected tests live until the end: garbage collection need not scan them.

    With its first example, Hypothesis asks the collector for the owner of its random source, and
    warns without an owner. From Python 3.14 on, the owner is among the objects that are no longer
    scanned.
    """
    given(strategies.none())(lambda _: None)()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(
            100_000, 20, 100
        )  # scanned, collection takes 4 % of the time of tests that compute
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """A test that is ``quiet`` or ``core`` gives the reason: each run of ``make test`` pays for the
    test.

    Long files come first, after all other files have been ordered: a long file begun last would
    keep one worker busy while the other workers are idle.
    """
    for item in items:
        for name in ("quiet", "core"):
            mark = item.get_closest_marker(name)
            if mark is not None and not (mark.args and mark.args[0]):
                raise pytest.UsageError(f'{item.nodeid}: say why, as in mark.{name}("reason")')
    yield
    takes_s: dict[Path, float] = {}
    for item in items:
        its_s = _takes_s(item, config.option.markexpr == "quiet")
        takes_s[item.path] = max(its_s, takes_s.get(item.path, 0))
    items.sort(key=lambda item: -takes_s[item.path])


def _takes_s(item: pytest.Item, quiet: bool) -> float:
    """Duration given by the test's file: of its quiet tests only, or of all others."""
    mark = item.get_closest_marker("quiet" if quiet else "takes")
    if mark is None:
        return 0
    return mark.kwargs.get("takes_s", 0) if quiet else mark.args[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("device", "run the conformance suite against real hardware")
    group.addoption("--device-driver", metavar="NAME", help="an optical driver's name")
    group.addoption("--device-address", metavar="ADDRESS", help="as in planes[].address")
    group.addoption("--device-username", metavar="USER", help="as in login.username")
    group.addoption("--device-password-env", metavar="VAR", help="as in login.password_env")
    group.addoption(
        "--device-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="as in options, VALUE in YAML; repeat for each",
    )
    group.addoption(
        "--device-deviation",
        metavar="NAME",
        action="append",
        default=[],
        help="a deviation of tests/conformance/candidate.py that the device has",
    )
    group.addoption(
        "--device-ports", type=int, default=16, metavar="N", help="ports on each side it has"
    )
    group.addoption(
        "--device-tor-port",
        action="append",
        default=[],
        metavar="NAME",
        help="a port that nobody uses, of a ToR switch; give four",
    )
    group.addoption(
        "--device-timeout", type=float, default=10.0, metavar="S", help="for each command"
    )


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    """A member of etcd; each test uses a separate prefix."""
    with EtcdMembers(tmp_path_factory.mktemp("etcd")) as members:
        yield members


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium has no sandbox for root, who runs tests with Open vSwitch.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose test fails on any console message, unless ``excused``."""
    context = browser.new_context(viewport={"width": 1400, "height": 1500})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.excused = []
    yield page
    context.close()
    assert [text for text in said if not any(words in text for words in page.excused)] == []
