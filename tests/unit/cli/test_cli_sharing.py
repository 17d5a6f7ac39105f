"""``hydra sharing`` against the real REST API over HTTP."""

import json

import pytest

from hydra.errors import DeviceUnavailable
from hydra.policy import Sharing
from mininet_scenarios import plain_http


def test_it_shows_and_sets(call, service):
    assert call("sharing").stdout == "by-demand\n"
    assert call("sharing", "on-demand").stdout == "on-demand\n"
    assert service.shared is Sharing.ON_DEMAND
    assert json.loads(call("sharing", "--json").stdout) == {
        "sharing": "on-demand",
        "in_force": "on-demand",
        "reason": "policy.sharing says so",
    }


@pytest.mark.parametrize("body", [{}, {"sharing": "fairly"}, {"sharing": 3}, {"sharing": None}])
def test_there_is_no_such_sharing(service, rest, body):
    answer = plain_http.request("PUT", f"{rest.url}/v1/sharing", json=body)
    assert answer.status_code == 422
    assert service.shared is Sharing.BY_DEMAND


def test_a_controller_that_is_busy(call, service):
    service.fails_with = DeviceUnavailable("controller", "busy")
    refused = call("sharing", "differentiated")
    assert refused.exit_code == 1
    assert "busy" in refused.stderr
