"""``hydra reserve --megabytes`` against the real REST API over HTTP."""

import json
from datetime import UTC, datetime

import pytest

from tests.unit.rest.fake_service import CREATED_UNIX_S

END = ("--end", datetime.fromtimestamp(CREATED_UNIX_S + 10**10, UTC).isoformat())
BYTES = ("reserve", "r1", "r2", "--megabytes", "125")


def test_bytes_by_a_deadline(call):
    made = call(*BYTES, *END)
    assert made.exit_code == 0, made.stderr
    assert "100.0 Mb/s in each direction" in made.stdout
    assert "transfer   125 MB by " in made.stdout
    cheapest = json.loads(call(*BYTES, *END, "--profile", "cheapest", "--json").stdout)
    assert cheapest["transfer"]["profile"] == "cheapest"


def test_availability(call):
    shown = call("availability", "r1", "r2")
    assert shown.exit_code == 0, shown.stderr
    assert "Available between r1 and r2" in shown.stdout
    (span,) = json.loads(call("availability", "r1", "r2", *END, "--json").stdout)["spans"]
    assert span["mbps"] == 100


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("reserve", "r1", "r2"), "give --mbps, or --megabytes with --end"),
        ((*BYTES, "--mbps", "5", *END), "give --mbps, or --megabytes with --end"),
        ((*BYTES,), "--megabytes needs --end, the deadline"),
        ((*BYTES, "--duration", "5"), "--megabytes needs --end, the deadline"),
    ],
)
def test_wrong_usage(call, arguments, told):
    result = call(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
