"""schemathesis on the running server: for any request, the answer is a described one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.takes(40)

CONFIG = Path(__file__).with_name("schemathesis.toml")
SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


def test_schemathesis_finds_nothing(server, tmp_path, monkeypatch):
    """Examples, edge cases of every parameter, random data, and sequences of requests."""
    # No outcome here takes time that `?wait=` could wait for.
    monkeypatch.setattr("apps.rest.reply.LONGEST_WAIT_S", 0)
    result = subprocess.run(
        [
            *(SCHEMATHESIS, "--config-file", CONFIG, "run", f"{server.url}/openapi.json"),
            *("--max-examples", "5", "--generation-deterministic", "--no-color"),
            *("--exclude-path", "/v1/events"),  # an endless stream, as is the next one
            *("--exclude-path", "/v1/agents/{server_name}/circuits"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    (cases,) = re.findall(r"(\d+) generated", result.stdout)
    assert int(cases) > 500
