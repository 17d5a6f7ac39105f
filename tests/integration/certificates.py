"""Certificates by ``hydra ca``, and Open vSwitch with these certificates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HYDRA = Path(sys.executable).parent / "hydra"


def vsctl(*arguments: str) -> str:
    return subprocess.run(
        ["ovs-vsctl", *arguments], check=True, capture_output=True, text=True
    ).stdout


def authority(directory: Path) -> Path:
    """An authority with certificates for a controller at 127.0.0.1, and for the machine's
    switches.
    """
    for arguments in (
        ["create"],
        ["issue", "controller", "--host", "127.0.0.1"],
        ["issue", "switches", "--use", "client"],
    ):
        subprocess.run([HYDRA, "ca", *arguments, "--dir", str(directory)], check=True)
    return directory


def of_openflow(lab: Path) -> dict[str, str]:
    """Settings of a controller that accepts only switches of this authority."""
    return {
        "openflow_certificate": str(lab / "controller.pem"),
        "openflow_key": str(lab / "controller.key"),
        "openflow_authority": str(lab / "ca.pem"),
    }


def use_certificates(directory: Path) -> None:
    names = ("switches.key", "switches.pem", "ca.pem")
    vsctl("set-ssl", *(str(directory / name) for name in names))


def connected() -> set[str]:
    """Controllers to which Open vSwitch reports a connection."""
    rows = vsctl("--bare", "--columns=target", "find", "controller", "is_connected=true")
    return set(rows.split())
