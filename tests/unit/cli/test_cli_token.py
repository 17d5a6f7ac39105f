import errno
import fcntl
import json
import os
import stat

import pytest

from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.tokens import TokenFile, read_tokens
from hydra.access import identify
from tests.unit.rest.fake_service import FakeService


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.json"


@pytest.fixture
def token(run, path):
    """token("create", …): ``hydra token create … --file FILE``."""
    return lambda *arguments: run("token", *arguments, "--file", str(path))


def test_create_list_revoke(token, path):
    made = token("create", "olaf", "--role", "operator")
    assert made.exit_code == 0
    secret = made.stdout.strip()[-20:]  # the token may have any character of URLs
    assert len(made.stdout.strip()) > 50
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token("create", "tina", "--role", "tenant")
    listed = json.loads(token("list", "--json").stdout)["tokens"]
    assert [(one["name"], one["role"]) for one in listed] == [
        ("olaf", "operator"),
        ("tina", "tenant"),
    ]
    assert "tenant" in token("list").stdout
    assert token("revoke", "olaf").exit_code == 0
    assert [one["name"] for one in json.loads(token("list", "--json").stdout)["tokens"]] == ["tina"]


def test_a_file_of_tokens_behind_a_link_stays_there(token, path, tmp_path):
    target = tmp_path / "elsewhere.json"
    path.symlink_to(target)
    assert token("create", "olaf", "--role", "operator").exit_code == 0
    assert path.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    target.chmod(0o664)
    assert token("create", "tina", "--role", "tenant").exit_code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert set(TokenFile(path).known()) == {"olaf", "tina"}


def holder(saved, path):
    return identify(saved.read_text().strip(), TokenFile(path).known()).name


def test_a_token_is_saved_for_its_owner_alone(token, path, tmp_path):
    place = tmp_path / "olaf.token"
    made = token("create", "olaf", "--role", "operator", "--save", str(place))
    assert made.exit_code == 0
    assert made.stdout == ""
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert holder(place, path) == "olaf"
    again = token("create", "vera", "--role", "viewer", "--save", str(place))
    assert again.exit_code == 1
    assert f"can't save the token in {place}: File exists" in again.stderr
    assert holder(place, path) == "olaf"
    assert "vera" not in token("list").stdout


def test_no_token_is_left_where_the_file_of_tokens_cannot_be_written(run, tmp_path):
    place, nowhere = tmp_path / "olaf.token", tmp_path / "file" / "tokens.json"
    nowhere.parent.write_text("")
    saved = ("--save", str(place), "--file", str(nowhere))
    assert run("token", "create", "olaf", "--role", "operator", *saved).exit_code == 1
    assert not place.exists()


@pytest.mark.parametrize(
    "arguments", [("create", "vera", "--role", "viewer"), ("quota", "tina"), ("revoke", "olaf")]
)
def test_two_who_change_tokens_at_a_time_undo_nothing_of_each_other_s(
    token, path, monkeypatch, arguments
):
    """Otherwise a new token would be missing, or a revoked token would come back."""
    token("create", "olaf", "--role", "operator")
    token("create", "tina", "--role", "tenant")
    alone = []

    def read(where):
        folder = os.open(where.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            alone.append(where)
        finally:
            os.close(folder)
        return read_tokens(where)

    monkeypatch.setattr("apps.cli.token.read_tokens", read)
    assert token(*arguments).exit_code == 0
    assert alone == [path]


def test_tokens_are_changed_where_a_folder_can_not_be_locked(token, path, monkeypatch):
    """flock(2): on NFS, an exclusive lock needs a file open for writing."""

    def refuse(_descriptor, _operation):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert token("create", "olaf", "--role", "operator").exit_code == 0
    assert token("revoke", "olaf").exit_code == 0
    assert read_tokens(path) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "a_b", "--role", "viewer"), "can't name a token"),
        (("create", "olaf", "--role", "viewer"), "there is a token 'olaf' already"),
        (("revoke", "vera"), "no token 'vera'"),
    ],
)
def test_refusals(token, path, arguments, words):
    token("create", "olaf", "--role", "operator")
    before = path.read_text()
    result = token(*arguments)
    assert result.exit_code == 1
    assert words in result.stderr
    assert path.read_text() == before


def test_a_file_that_is_something_else_is_left_alone(token, path):
    path.write_text("notes")
    result = token("create", "olaf", "--role", "operator")
    assert result.exit_code == 1
    assert "is not a file of tokens" in result.stderr
    assert path.read_text() == "notes"


def test_commands_send_the_token_that_the_environment_has(
    run, token, path, fabric, monkeypatch, tmp_path
):
    secret = token("create", "vera", "--role", "viewer").stdout.strip()
    server = RestServer(create_app(FakeService(fabric), TokenFile(path)), "127.0.0.1", 0)
    server.start()
    try:
        stranger = run("topology", "--url", server.url)
        assert stranger.exit_code == 1
        assert "in HYDRA_TOKEN" in stranger.stderr
        monkeypatch.setenv("HYDRA_TOKEN", secret[:-1])
        wrong = run("topology", "--url", server.url)
        assert wrong.exit_code == 1
        assert "this token is not valid: mistyped or revoked" in wrong.stderr
        monkeypatch.setenv("HYDRA_TOKEN", secret)
        assert run("topology", "--url", server.url).exit_code == 0
        forbidden = run("reserve", "r1", "r2", "--mbps", "1", "--url", server.url)
        assert "vera has the role viewer" in forbidden.stderr
        monkeypatch.delenv("HYDRA_TOKEN")
        file = tmp_path / "vera.token"
        file.write_text(secret + "\n")
        monkeypatch.setenv("HYDRA_TOKEN_FILE", str(file))
        assert run("topology", "--url", server.url).exit_code == 0
        monkeypatch.setenv("HYDRA_TOKEN_FILE", str(tmp_path / "none"))
        assert run("topology", "--url", server.url).exit_code == 2
    finally:
        server.stop()


def test_a_file_that_holds_no_text_is_told_in_words(call, monkeypatch, tmp_path):
    (tmp_path / "a.token").write_text("hydra_a_b", encoding="utf-16")
    monkeypatch.setenv("HYDRA_TOKEN_FILE", str(tmp_path / "a.token"))
    result = call("topology")
    assert result.exit_code == 2
    assert "a.token can't be read (no UTF-8 text): name the file" in result.stderr


@pytest.mark.parametrize("variable", ["HYDRA_TOKEN_FILE", "HYDRA_CA"])
def test_a_file_that_a_variable_names_and_is_not_there_is_told_with_the_remedy(
    call, monkeypatch, tmp_path, variable
):
    monkeypatch.setenv(variable, str(tmp_path / "none"))
    result = call("topology")
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert f"{variable} {tmp_path / 'none'} can't be read (No such file or directory): " in told
    assert "or unset it" in told


def test_what_is_no_token_is_not_repeated(call, monkeypatch):
    monkeypatch.setenv("HYDRA_TOKEN", "two\nlines")
    result = call("topology")
    assert result.exit_code == 2
    assert "two" not in result.stderr


def test_quotas_are_set_shown_and_lifted(token, path):
    token("create", "tina", "--role", "tenant", "--max-reservations", "2", "--max-mbps", "50")
    (one,) = json.loads(token("list", "--json").stdout)["tokens"]
    assert (one["max_reservations"], one["max_mbps"]) == (2, 50.0)
    assert "2 reservations and 50 Mb/s" in token("list").stdout
    secret = json.loads(path.read_text())["tokens"][0]["secret_sha256"]
    assert "may have 70 Mb/s" in token("quota", "tina", "--max-mbps", "70").stdout
    (stored,) = json.loads(path.read_text())["tokens"]
    assert stored["secret_sha256"] == secret, "the token itself stays good"
    assert "max_reservations" not in stored
    assert "the fabric's capacity" in token("quota", "tina").stdout


@pytest.mark.parametrize("mbps", ["inf", "nan"])
def test_a_limit_without_an_end_leaves_the_file_as_it_is(token, path, mbps):
    token("create", "tina", "--role", "tenant")
    before = path.read_text()
    result = token("quota", "tina", "--max-mbps", mbps)
    assert result.exit_code == 2
    assert f"{mbps} is not a finite number" in result.stderr
    assert path.read_text() == before
    assert token("list").exit_code == 0


def test_quotas_are_for_tenants_that_there_are(token, path):
    token("create", "vera", "--role", "viewer")
    before = path.read_text()
    for arguments, words in (
        (("quota", "vera", "--max-mbps", "1"), "for tenants"),
        (("quota", "tina", "--max-mbps", "1"), "no token 'tina'"),
        (("create", "olaf", "--role", "operator", "--max-mbps", "1"), "for tenants"),
    ):
        result = token(*arguments)
        assert result.exit_code == 1
        assert words in result.stderr
    assert path.read_text() == before


def test_quotas_without_tokens_are_none(call):
    assert "none" in call("quotas").stdout
    assert json.loads(call("quotas", "--json").stdout) == {"quotas": []}
