"""Commands for what failed, against the real REST API over HTTP."""

import json


def test_quarantine_lists_ports_with_reason_and_end(call):
    text = call("quarantine").stdout
    assert "hyt-r1-p1" in text and "no carrier at r1" in text and "on trial" in text
    assert "cleared" in text
    document = json.loads(call("quarantine", "--json").stdout)
    assert [port["rack"] for port in document["ports"]] == ["r1", "r2"]


def test_quarantine_clear(call):
    result = call("quarantine", "clear", "r2", "hyt-r2-p2")
    assert result.exit_code == 0
    assert result.stdout == "r2 hyt-r2-p2 may be used again; it was out because: no light\n"
    assert [p["rack"] for p in json.loads(call("quarantine", "--json").stdout)["ports"]] == ["r1"]
    refused = call("quarantine", "clear", "r2", "hyt-r2-p2")
    assert refused.exit_code == 1
    assert "not in quarantine" in refused.stderr


def test_an_empty_quarantine(call, service):
    service.quarantined.clear()
    assert call("quarantine").stdout == "Quarantine: none\n"
