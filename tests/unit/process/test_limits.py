"""A sentence reports too little memory, before anything is opened."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from apps.process import limits
from hydra.errors import HydraError

ROOT = Path(__file__).parents[3]
MIB = 1 << 20


@pytest.mark.parametrize(("limit", "option"), [("RLIMIT_AS", "-v"), ("RLIMIT_DATA", "-d")])
def test_a_limit_that_is_too_low_is_named_with_its_value(monkeypatch, limit, option):
    def getrlimit(which):
        low = which == getattr(resource, limit)
        return (300 * MIB if low else resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    with pytest.raises(HydraError, match=rf"300 MiB of .*ulimit {option}.* at least 512 MiB"):
        limits.check_memory()


def test_without_limits_nothing_is_said():
    limits.check_memory()


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_what_a_limit_has_caused_is_a_sentence(error):
    assert "gets no more memory or threads" in str(limits.short_of_memory(error))


def test_other_errors_are_none_of_its_business():
    assert limits.short_of_memory(RuntimeError("dictionary changed size")) is None


@pytest.mark.parametrize("command", [["hydra", "run", "--config"], ["ryu-manager"]])
def test_a_controller_with_too_little_says_so(command, tmp_path):
    config = ROOT / "configs" / "demo.yaml"
    name, *options = command
    words = [str(Path(sys.executable).with_name(name)), *options]
    words.append(str(config) if options else str(ROOT / "apps" / "main.py"))
    run = subprocess.run(
        ["sh", "-c", 'ulimit -v 262144; exec "$@"', "sh", *words],
        cwd=tmp_path,
        env={"HYDRA_CONFIG": str(config), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode != 0
    assert "may have 256 MiB of address space (ulimit -v" in run.stderr
    assert "Traceback" not in run.stderr
