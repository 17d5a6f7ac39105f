import json

import pytest

from apps.prices.files import SHIPPED


def test_table_beside_the_paper(run):
    result = run("price")
    assert result.exit_code == 0, result.output
    assert "HydRA, K = 32" in result.stdout
    assert "37.3 %" in result.stdout
    assert "30 %" in result.stdout


@pytest.mark.parametrize("name", SHIPPED)
def test_json_and_plot(run, name, tmp_path):
    plot = tmp_path / "prices.png"
    result = run("price", name, "--json", "--plot", str(plot))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["published"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_helios_table(run):
    result = run("price", "helios-2010")
    assert "cheapest superlinks" in result.stdout
    assert "ports saved" in result.stdout


def test_own_file_and_own_numbers(run, tmp_path):
    text = run("price", "hydra-2015", "--show-file").stdout
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("usd: 110000", "usd: 10000"))
    options = ("--planes", "16", "--oversubscription", "6", "--json")
    theirs = json.loads(run("price", "hydra-2015", *options).stdout)["networks"]
    ours = json.loads(run("price", str(mine), *options).stdout)["networks"]
    assert [one["network"] for one in ours] == ["HydRA, K = 16", "fat tree, β = 6"]
    assert theirs[0]["usd"] - ours[0]["usd"] == 16 * 100_000
    assert theirs[1] == ours[1]


def test_errors(run, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: racks\n")
    bad = run("price", str(mine))
    assert bad.exit_code == 1
    assert "mine.yaml" in bad.stderr
    unknown = run("price", "hydra-2016")
    assert unknown.exit_code == 1
    assert "hydra-2015" in unknown.stderr
    assert run("price", "helios-2010", "--planes", "3").exit_code == 2
    assert run("price", "--show-file", "--json").exit_code == 2
    nowhere = run("price", "--plot", str(tmp_path / "none" / "x.png"))
    assert nowhere.exit_code == 1
    assert "can't be written" in nowhere.stderr


def test_fat_trees_of_equal_cost(run):
    (told,) = json.loads(run("price", "--planes", "20", "--json").stdout)["equal_cost"]
    assert (told["hydra"], round(told["oversubscription"], 2)) == ("HydRA, K = 20", 5.98)
    shown = run("price", "--planes", "20", "--planes", "80", "--equal-cost").stdout
    assert "5.98" in shown
    assert "none" in shown  # 80 planes cost more than full bisection
    assert run("price", "helios-2010", "--equal-cost").exit_code == 2


def test_power_and_the_price_of_a_higher_rate_are_told(run):
    networks = json.loads(run("price", "--planes", "32", "--json").stdout)["networks"]
    hydra, fat_tree = networks[:2]
    assert hydra["watt"] < fat_tree["watt"]
    assert hydra["upgrade_usd"] < hydra["usd"]
    assert fat_tree["upgrade_usd"] == fat_tree["usd"]
