import json


def test_add_list_remove(call):
    made = call("webhooks", "add", "https://a.example/x", "--kind", "circuit-up", "--tenant", "t")
    assert made.exit_code == 0
    assert made.stdout.startswith("whsec_")
    assert "a.example" in made.stderr
    (one,) = json.loads(call("webhooks", "--json").stdout)["webhooks"]
    assert (one["url"], one["kinds"], one["tenant"]) == ("https://a.example/x", ["circuit-up"], "t")
    assert "circuit-up" in call("webhooks").stdout
    assert "gets no more events" in call("webhooks", "remove", one["id"]).stdout
    assert "none" in call("webhooks").stdout


def test_refusals(call):
    refused = call("webhooks", "add", "mailto:me")
    assert refused.exit_code == 1
    assert "/url: must be http:// or https://, a name" in refused.stderr
    assert "pattern" not in refused.stderr
    assert call("webhooks", "remove", "nothing").exit_code == 1
