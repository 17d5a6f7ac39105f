"""deploy/container/Containerfile, built and run by podman; without podman, only linted
(``tests/unit/deploy/test_container.py``).
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.surroundings import for_downloads

from .conftest import DEMO_CONFIG, REPOSITORY
from .live import wait_until

pytestmark = [
    pytest.mark.takes(180),
    pytest.mark.skipif(
        shutil.which("podman") is None or os.geteuid() != 0,
        reason="podman, or root, is missing: the Containerfile is linted, but not built",
    ),
]
IMAGE = "localhost/hydra-tested"
# crun refuses a machine with control groups of both versions.
PREPARE = "mount -t tmpfs none /run; mount -t cgroup2 none /sys/fs/cgroup; exec sleep infinity"


class Podman:
    """podman with separate images, in namespaces that end together with all processes inside."""

    def __init__(self, storage: Path) -> None:
        configuration = storage / "storage.conf"
        places = f'graphroot = "{storage}/images"\nrunroot = "{storage}/run"\n'
        configuration.write_text(f'[storage]\ndriver = "overlay"\n{places}')
        # Without systemd, only the test checks a container's health.
        own = {"CONTAINERS_STORAGE_CONF": str(configuration), "DISABLE_HC_SYSTEMD": "true"}
        self._environment = os.environ | for_downloads() | own
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._outer = subprocess.Popen([*apart, "sh", "-c", PREPARE])
        self._children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        wait_until(lambda: bool(self._children.read_text()))
        wait_until(lambda: self.run("findmnt", "--types", "cgroup2", "/sys/fs/cgroup") is None)

    def close(self) -> None:
        self._outer.kill()
        self._outer.wait()

    def run(self, *command: str | Path) -> str | None:
        """The output of a failed command."""
        done = self._run(*command)
        return done.stdout + done.stderr if done.returncode else None

    def __call__(self, *arguments: str | Path) -> str:
        done = self._run("podman", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def _run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        inner = self._children.read_text().strip()
        enter = ["nsenter", "--target", inner, "--mount", "--pid"]
        return subprocess.run(
            [*enter, *command],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    storage = tmp_path_factory.mktemp("podman")
    podman = Podman(storage)
    try:
        said = podman.run(REPOSITORY / "scripts" / "image.sh", IMAGE)
        assert said is None, said
        yield podman
    finally:
        podman.close()
        shutil.rmtree(storage)


@pytest.fixture
def container(podman: Podman, tmp_path: Path) -> str:
    """Id of a container with the documented restrictions, and a network of its own."""
    configuration = yaml.safe_load(DEMO_CONFIG.read_text())
    configuration["controller"]["journal"] = "/var/lib/hydra/journal.db"
    fabric = tmp_path / "fabric.yaml"
    fabric.write_text(yaml.safe_dump(configuration))
    restricted = ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"]
    volumes = [f"--volume={fabric}:/etc/hydra/fabric.yaml:ro", "--volume=hydra:/var/lib/hydra"]
    here = ["--network=none", "--cgroups=disabled", limit("nofile"), limit("nproc")]
    container = podman("run", "--detach", *restricted, *volumes, *here, IMAGE)
    wait_until(lambda: is_well(podman, container))
    return container


def limit(name: str) -> str:
    """The option that sets a limit to this process's own limit, since podman may request a higher
    limit.
    """
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    return f"--ulimit={name}={hard}:{hard}"


def is_well(podman: Podman, container: str) -> bool:
    return podman.run("podman", "healthcheck", "run", container) is None


def test_a_user_without_powers_runs_it_on_a_read_only_root(podman, container):
    assert podman("inspect", "--format={{.State.Health.Status}}", container) == "healthy"
    assert podman("exec", container, "id", "--user") == "6653"
    powers = podman("exec", container, "cat", "/proc/1/status").splitlines()
    fields = dict(line.split(":\t", 1) for line in powers)
    assert {fields[f"Cap{kind}"] for kind in ("Prm", "Eff", "Bnd")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    refused = podman.run("podman", "exec", container, "touch", "/opt/hydra/new")
    assert "Read-only file system" in (refused or "")
    status = podman.run("podman", "exec", container, "hydra", "status")
    assert "8 vswitches are not connected" in (status or "")

    frozen = podman("kill", "--signal=STOP", container)
    assert not is_well(podman, frozen), "one that does not answer"
    podman("kill", "--signal=CONT", container)
    wait_until(lambda: is_well(podman, container))

    podman("stop", container)
    assert podman("inspect", "--format={{.State.ExitCode}}", container) == "0"
    kept = Path(podman("volume", "inspect", "--format={{.Mountpoint}}", "hydra"))
    assert kept.joinpath("journal.db").stat().st_mode & 0o777 == 0o600
