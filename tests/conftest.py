"""Options for a device of one's own: ``pytest tests/conformance --device-driver=… …``."""

from __future__ import annotations

import pytest


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
