"""A lab's authority, tested with TLS of Python and OpenSSL."""

import json
import re
import socket
import ssl
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from apps.rest.app import create_app
from apps.rest.server import RestServer
from apps.rest.trust import Tls
from tests.unit.rest.fake_service import FakeService
from tests.waiting import PATIENCE_S


@pytest.fixture
def ca(run, tmp_path):
    """ca("create", …): ``hydra ca create … --dir DIR``."""
    return lambda *arguments: run("ca", *arguments, "--dir", str(tmp_path / "ca"))


@pytest.fixture
def directory(ca, tmp_path):
    """An authority with a server's certificate for 127.0.0.1."""
    assert ca("create").exit_code == 0
    assert ca("issue", "rest", "--host", "127.0.0.1", "--host", "hydra.example").exit_code == 0
    return tmp_path / "ca"


def test_rest_with_a_certificate_that_clients_verify(directory, fabric):
    tls = Tls(str(directory / "rest.pem"), str(directory / "rest.key"))
    server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0, tls)
    server.start()
    try:
        trusted = ssl.create_default_context(cafile=str(directory / "ca.pem"))
        trusted.verify_flags |= ssl.VERIFY_X509_STRICT
        assert (
            httpx.get(f"{server.url}/healthz", verify=trusted, timeout=PATIENCE_S).status_code
            == 200
        )
        with pytest.raises(httpx.ConnectError, match="Hostname mismatch"):
            httpx.get(
                f"https://localhost:{server.port}/healthz", verify=trusted, timeout=PATIENCE_S
            )
    finally:
        server.stop()


@pytest.mark.parametrize("known", [True, False])
def test_the_container_looks_after_a_controller_with_tls(directory, fabric, known):
    """The command of HEALTHCHECK trusts the same authorities as the hydra command."""
    text = (Path(__file__).parents[3] / "deploy" / "container" / "Containerfile").read_text()
    (command,) = re.findall(r"HEALTHCHECK .*\n +CMD (.*)", text)
    _, *arguments = json.loads(command)
    tls = Tls(str(directory / "rest.pem"), str(directory / "rest.key"))
    server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0, tls)
    server.start()
    try:
        told = {"HYDRA_URL": server.url} | (
            {"HYDRA_CA": str(directory / "ca.pem")} if known else {}
        )
        looked = subprocess.run(
            [sys.executable, *arguments], env=told, check=False, timeout=PATIENCE_S
        )
    finally:
        server.stop()
    assert (looked.returncode == 0) == known


def test_the_command_trusts_the_authority_that_it_is_told_of_alone(
    run, directory, fabric, monkeypatch
):
    tls = Tls(str(directory / "rest.pem"), str(directory / "rest.key"))
    server = RestServer(create_app(FakeService(fabric)), "127.0.0.1", 0, tls)
    server.start()
    try:
        for known in (False, True):
            if known:
                monkeypatch.setenv("HYDRA_CA", str(directory / "ca.pem"))
            asked = run("topology", "--url", server.url, "--json")
            assert (asked.exit_code == 0) == known, asked.output
            assert ("certificate verify failed" in asked.output) == (not known)
    finally:
        server.stop()


def test_a_switch_and_the_controller_know_each_other(directory, ca):
    """TLS with certificates on both sides, as for OpenFlow."""
    assert ca("issue", "br-h11", "--use", "client").exit_code == 0
    controller = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    controller.load_cert_chain(directory / "rest.pem", directory / "rest.key")
    controller.load_verify_locations(directory / "ca.pem")
    controller.verify_mode = ssl.CERT_REQUIRED
    switch = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    switch.load_cert_chain(directory / "br-h11.pem", directory / "br-h11.key")
    near, far = socket.socketpair()
    heard = []

    def serve():
        with controller.wrap_socket(far, server_side=True) as accepted:
            heard.append(dict(accepted.getpeercert()["subject"][0])["commonName"])
            accepted.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with switch.wrap_socket(near, server_hostname="hydra.example") as connection:
        connection.send(b"x")
        thread.join(PATIENCE_S)
    assert heard == ["br-h11"]


@pytest.mark.parametrize(("name", "purpose"), [("rest", "sslserver"), ("tor", "sslclient")])
def test_openssl_agrees(directory, ca, name, purpose):
    ca("issue", "tor", "--use", "client")
    verified = subprocess.run(
        [
            *("openssl", "verify", "-x509_strict", "-purpose", purpose),
            *("-CAfile", directory / "ca.pem", directory / f"{name}.pem"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stderr


def ends(certificate):
    return x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc


def names(certificate):
    read = x509.load_pem_x509_certificate(certificate.read_bytes())
    return read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_a_certificate_is_renewed_by_one_command(directory, ca):
    rest, key = directory / "rest.pem", directory / "rest.key"
    before, secret, what_for = ends(rest), key.read_bytes(), names(rest)
    with rest.open("rb") as reader:
        renewed = ca("issue", "rest", "--renew", "--days", "700")
        assert renewed.exit_code == 0, renewed.output
        x509.load_pem_x509_certificate(reader.read())  # complete, for a simultaneous reader
    assert ends(rest) > before
    assert key.read_bytes() == secret  # so that certificate and key match at any time
    assert names(rest) == what_for
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(rest, key)
    test_openssl_agrees(directory, ca, "rest", "sslserver")


def test_a_renewed_certificate_keeps_its_use_and_may_be_for_other_hosts(directory, ca):
    assert ca("issue", "tor", "--use", "client").exit_code == 0
    assert ca("issue", "tor", "--renew").exit_code == 0
    test_openssl_agrees(directory, ca, "tor", "sslclient")
    assert ca("issue", "rest", "--renew", "--host", "10.0.0.5").exit_code == 0
    (host,) = names(directory / "rest.pem")
    assert str(host.value) == "10.0.0.5"


def test_a_certificate_of_another_key_is_not_renewed(directory, ca):
    assert ca("issue", "tor", "--use", "client").exit_code == 0
    (directory / "tor.key").write_bytes((directory / "rest.key").read_bytes())
    before = (directory / "tor.pem").read_bytes()
    refused = ca("issue", "tor", "--renew")
    assert refused.exit_code == 1
    assert "is not the certificate of tor.key" in refused.stderr
    assert (directory / "tor.pem").read_bytes() == before


def test_the_use_of_a_foreign_certificate_is_asked_for(directory, ca):
    key = serialization.load_pem_private_key((directory / "rest.key").read_bytes(), None)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rest")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    made = made.public_key(key.public_key()).serial_number(1)
    now = datetime.now(UTC)
    made = made.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (directory / "rest.pem").write_bytes(pem)
    refused = ca("issue", "rest", "--renew")
    assert refused.exit_code == 1
    assert "is for neither servers nor clients: add --use server" in refused.stderr
    assert ca("issue", "rest", "--renew", "--use", "server").exit_code == 0


def test_keys_are_their_owners_alone(directory):
    for key in directory.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create",), "exists already"),
        (("issue", "rest", "--host", "127.0.0.1"), "--renew renews"),
        (("issue", "other", "--renew"), "`hydra ca issue other` makes one"),
        (("issue", "ca", "--renew"), "can't name a certificate"),
        (("issue", "ca", "--host", "a"), "can't name a certificate"),
        (("issue", "../x", "--host", "a"), "can't name a certificate"),
        (("issue", "", "--host", "a"), "can't name a certificate"),
        (("issue", "y", "--host", "b\xfccher.example"), "as DNS has it"),
        (("issue", "y", "--host", ""), "as DNS has it"),
        (("issue", "y", "--host", "10.0.0.5:8443"), "as DNS has it"),
        (("issue", "y", "--host", "https://hydra.example"), "as DNS has it"),
        (("issue", "y", "--host", "hydra.example,10.0.0.5"), "as DNS has it"),
        (("issue", "y", "--host", "a", "--days", "36500"), "fewer days"),
    ],
)
def test_refusals_change_nothing(directory, ca, arguments, words):
    before = {path: path.read_bytes() for path in directory.iterdir()}
    refused = ca(*arguments)
    assert refused.exit_code == 1
    assert words in refused.stderr
    assert {path: path.read_bytes() for path in directory.iterdir()} == before


def test_without_an_authority(ca, tmp_path):
    assert "`hydra ca create`" in ca("issue", "rest", "--host", "a").stderr
    assert ca("issue", "rest").exit_code == 2
    (tmp_path / "ca").mkdir()
    for name in ("ca.pem", "ca.key"):
        (tmp_path / "ca" / name).write_text("notes")
    assert "no authority" in ca("issue", "rest", "--host", "a").stderr


def test_json(ca, tmp_path):
    made = json.loads(ca("create", "--json").stdout)
    assert made["certificate"] == str(tmp_path / "ca" / "ca.pem")
