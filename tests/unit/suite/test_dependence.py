"""No test depends on the load of its machine; apparent dependences have a reason."""

import ast
from pathlib import Path

import pytest

from .dependence import files, findings

TESTS = Path(__file__).parents[2]
RESTS_ON = [
    TESTS.parent / "mininet_scenarios" / name
    for name in ("emulators", "stage", "testbed", "workloads", "replicas.py", "workers.py")
]
"""Programs that tests start and wait for."""
PACKAGES = [TESTS.parent / name for name in ("apps", "mininet_scenarios", "benchmarks")]
HERE = Path(__file__).parent


def words(source: str) -> list[str]:
    return [one.words for one in findings(source)]


@pytest.mark.takes(9)
def test_no_test_depends_on_how_busy_the_machine_is():
    found = [
        f"{path.relative_to(TESTS.parent)}:{one.line}: {one.words}"
        for root in (TESTS, *RESTS_ON)
        for path in files(root)
        if path.parent != HERE
        for one in findings(path.read_text())
    ]
    assert found == [], "see CONTRIBUTING.md, Tests and their surroundings"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("process.communicate(timeout=20)", "communicate(timeout=): time-out of 20 s"),
        ("assert process.wait(5) == 0", "wait: time-out of 5 s"),
        ("thread.join(10)", "join: time-out of 10 s"),
        ("wait_until(ready, 30)", "wait_until: time-out of 30 s"),
        ("urlopen(url, timeout=3)", "urlopen(timeout=): time-out of 3 s"),
        ("SOON_S = 5\nfuture.result(SOON_S)", "result: time-out of 5 s"),
        ("optical_switch(plane, 2.0)", "optical_switch: time-out of 2 s"),
        ("OvsTor('r1', address, timeout_s=2 * 5)", "OvsTor(timeout_s=): time-out of 10 s"),
        ("def start(timeout_s=5.0): pass", "timeout_s: time-out of 5 s"),
        ("page.set_default_timeout(20_000)", "set_default_timeout: time-out of 20 s"),
        ("run(['ovs-vsctl', '--timeout=10'])", "time-out of 10 s in an option"),
        ("options = {'timeout_s': 20}", "'timeout_s': time-out of 20 s"),
        ("class Bench:\n  timeout_s: float = 5.0", "timeout_s: time-out of 5 s"),
        ("channel = transport.accept(5)", "accept: time-out of 5 s"),
        ("wait([answer], 10)", "wait: time-out of 10 s"),
        ("post(url, headers={'Prefer': 'wait=20'})", "REST waits for 20 s at most"),
        ("Timer(0.3, service.finish)", "acts after 0.3 s, whatever has happened by then"),
        ("request(start_unix_s=time.time() + 0.05)", "a moment in 0.05 s"),
        ("httpx.get(url, verify=False)", "httpx.get: gives up after 5 s"),
        ("time.sleep(0.5)", "sleeps for 0.5"),
        ("start('sh', '-c', 'touch ready; sleep 60')", "a program sleeps for 60"),
        ("page.wait_for_timeout(250)", "sleeps for 250"),
        ("end_s = time.monotonic() + 10", "deadline in 10 s"),
        ("assert time.monotonic() - start_s < 5", "bound on measured time"),
        ("assert 0.2 < time.monotonic() - start_s < 5", "bound on measured time"),
        ("def f():\n  took_s = perf_counter() - a\n  assert took_s < 5", "bound on measured time"),
        ("def f():\n  s = []\n  s.append(perf_counter() - a)\n  assert max(s) < 5", "bound on"),
        ("def f():\n  return time.time() - a\ndef g():\n  assert f() < 5", "bound on measured"),
        (
            "class N:\n def f(self):\n  return monotonic() - a\ndef g():\n assert N().f() < 5",
            "bound on measured time",
        ),
        ("assert b_s - given_back_s < LEASE", "bound on measured time"),
        ("socket.create_server(('127.0.0.1', 8080))", "fixed port 8080"),
        ("RestServer(app, '127.0.0.1', 8080)", "fixed port 8080"),
    ],
)
def test_what_is_found(source, expected):
    (found,) = words(source)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    "source",
    [
        "process.communicate(timeout=60)",
        "assert process.wait(PATIENCE_S) == 0",
        "' '.join(names)\nnames.get(1)\nresult(3)",
        "while not stop.wait(0.01): pass",
        "while not ready():\n  time.sleep(0.01)",
        "httpx.get(url, timeout=PATIENCE_S)",
        "time.sleep(0)",
        "start('sh', '-c', 'until test -e end; do sleep 0.05; done')",
        "start('sh', '-c', 'touch ready; exec sleep 600')",
        "assert time.monotonic() - start_s >= 5",
        "assert time.monotonic() - start_s < HANGS_S",
        "assert time.time() - 60 < created_unix_s",
        "request(start_unix_s=time.time() + 1000)",
        "post(url, headers={'Prefer': 'wait=60'})",
        "options = {'timeout_s': PATIENCE_S}",
        "connection, _ = listener.accept()",
        "late = Timer(PATIENCE_S, device.cancel)",
        "end_s = time.monotonic() + PATIENCE_S",
        "socket.create_server(('127.0.0.1', 0))",
        "time.sleep(0.5)  # timed: the stream is under way",
        "# timed: the stream is under way\ntime.sleep(0.5)",
        "run(\n  app,\n  timeout=5,  # timed: nobody answers\n)",
        "def schedule(timeout_s=0.5):  # timed: on the test's clock\n  pass",
        "soon = pytest.mark.quiet('how soon')\n@soon\ndef f():\n  assert b_s - a_s < 5",
        "@pytest.mark.quiet('how soon')\ndef f():\n  assert time.monotonic() - start_s < 5",
    ],
)
def test_what_is_let_through(source):
    assert words(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(0.5)  # timed:",
        "time.sleep(0.5)  # timed: yes",
        "time.sleep(0.5)  # long enough",
        "# timed: the first one\ntime.sleep(0)\ntime.sleep(0.5)",
        "while True:  # timed: a reason of the loop\n  process.wait(5)\nprocess.wait(5)",
    ],
)
def test_a_reason_is_needed_for_each_and_has_words(source):
    assert len(words(source)) == 1


def test_every_legend_has_its_place():
    """matplotlib's automatic choice takes long, and gives a warning on a busy machine."""
    for path in (path for package in PACKAGES for path in files(package)):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if ".legend(" in source else ():
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "legend":
                (place,) = [one.value for one in node.keywords if one.arg == "loc"] or [None]
                named = isinstance(place, ast.Constant) and place.value != "best"
                assert named, f"{path}:{node.lineno}: legend(loc=…) is missing"
