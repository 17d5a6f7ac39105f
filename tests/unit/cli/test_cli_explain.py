import json


def test_a_circuit_is_explained_in_words(call):
    result = call("explain", "circuit", "r1", "r2")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "no circuit joins r1 and r2 directly"
    assert "2023-11-14 22:13:20 UTC keep: gains 1.0 Mb/s, less than 5 Mb/s" in result.stdout


def test_a_program_gets_the_facts(call):
    document = json.loads(call("explain", "circuit", "r1", "r2", "--json").stdout)
    assert document["decisions"][0]["proposal"]["algorithm"] == "hydra-bfs"
    assert document["paths"] == []


def test_a_rack_that_is_not_there(call):
    result = call("explain", "circuit", "r1", "r22")
    assert result.exit_code == 1
    assert "no rack 'r22'" in result.stderr
