"""The machine's certificate authorities, for packages with a list of their own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from apps.tools.authority import create_authority
from drivers.transports.tls import TlsOptions, all_authorities
from hydra.errors import DeviceError
from mininet_scenarios.emulators.certificate import CA


@pytest.fixture
def authority(tmp_path):
    """A file with a test's authority."""
    create_authority(tmp_path / "made", "ours", 7, datetime.now(UTC))
    return tmp_path / "made" / CA


def test_a_file_of_the_systems_is_read(authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert all_authorities("p1", TlsOptions()) == authority.read_text().strip()


def test_the_options_file_takes_its_place(authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/dev/null")
    assert all_authorities("p1", TlsOptions(ca_file=str(authority))) == authority.read_text()


def test_a_directory_is_read_by_the_names_that_openssl_looks_for(authority, monkeypatch, tmp_path):
    folder = tmp_path / "certs"
    folder.mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    (folder / "ours.pem").symlink_to(authority)
    with pytest.raises(DeviceError, match=r"p1: this machine trusts no authorities: .*ca_file"):
        all_authorities("p1", TlsOptions())
    (folder / "0a1b2c3d.0").symlink_to("ours.pem")
    assert all_authorities("p1", TlsOptions()) == authority.read_text().strip()
