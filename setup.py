"""Packaging. The distribution is not called ``hydra``: Debian and PyPI have others of that name."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "hydra/__init__.py").read_text())


def requirements(section: int) -> list[str]:
    """A section of requirements.txt, the only place where versions are written; 0: run time."""
    text = (HERE / "requirements.txt").read_text()
    chosen = text.split("\n\n")[section]
    lines = (line.split("#", 1)[0].strip() for line in chosen.splitlines())
    return [line for line in lines if line]


class BuildWithRyu(build_py):
    """Puts Ryu into the wheel: its last release builds only with the setuptools that we ask for."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # bootstrap.sh installs it
            self._add_ryu(Path(self.build_lib))

    def _add_ryu(self, target: Path) -> None:
        release = re.search(r"^ryu==.*(?:\\\n.*)+", (HERE / "constraints.txt").read_text(), re.M)
        if release is None:
            raise ValueError("constraints.txt does not name a release of Ryu")
        with tempfile.TemporaryDirectory() as folder:
            wanted = Path(folder) / "ryu.txt"
            wanted.write_text(release[0])
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
            options = ["--no-build-isolation", "--require-hashes", "--target", folder]
            subprocess.run([*pip, *options, "--requirement", str(wanted)], check=True)
            shutil.rmtree(target / "ryu", ignore_errors=True)
            (licence,) = Path(folder).glob("ryu-*.dist-info/LICENSE")
            ryu = Path(shutil.move(f"{folder}/ryu", target))
            shutil.rmtree(ryu / "tests")
            shutil.copy(licence, ryu)


def native(module: str, folder: str, *options: str) -> Extension:
    """Module of C for the stable interface: see docs/decisions/0006-compiled-kernels-in-c.md."""
    return Extension(
        module,
        sources=sorted(str(c.relative_to(HERE)) for c in HERE.glob(f"{folder}/*.c")),
        depends=sorted(str(h.relative_to(HERE)) for h in HERE.glob(f"{folder}/*.h")),
        extra_compile_args=["-std=c11", "-O3", "-Wall", "-Wextra", *options],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
    )


setup(
    name="hydra-hybrid-network",
    version=VERSION.group(1) if VERSION else "0",
    description="SDN controller for hybrid electrical/optical data centre networks",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(
        include=[
            "hydra",
            "hydra.*",
            "topology",
            "topology.*",
            "drivers",
            "drivers.*",
            "apps",
            "apps.*",
            "mininet_scenarios",
            "mininet_scenarios.*",
            "hydra_hybrid_network_client",
            "hydra_hybrid_network_client.*",
        ]
    ),
    package_data={
        "hydra_hybrid_network_client": ["py.typed"],
        "apps.prices": ["data/*.yaml"],
        "apps.rest": ["static/*"],
        "apps.traces": ["data/*.txt"],
        "mininet_scenarios.emulators": ["yang/*.yang"],
        "mininet_scenarios.experiments": ["templates/*.j2"],
        "mininet_scenarios.stage": ["*.c"],
        "mininet_scenarios.workloads": ["*.c"],
    },
    ext_modules=[
        # Sums must not depend on the machine: no fused multiply-add.
        native("topology._native", "topology/native", "-ffp-contract=off"),
        native("apps.openflow._lines", "apps/openflow/native", "-pthread"),
        native("drivers.codecs.openflow._tables", "drivers/codecs/openflow/native"),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    install_requires=[one for one in requirements(0) if not one.startswith("ryu==")],
    cmdclass={"build_py": BuildWithRyu},
    extras_require={
        "experiments": requirements(1),
        "tracing": requirements(2),
        "sonic": requirements(3),
        "etcd": requirements(4),
        "os-ken": requirements(5),
        "workers": requirements(6),
    },
    data_files=[  # below the environment's own directory, where `systemctl link` takes it from
        (
            "lib/systemd/system",
            [
                "deploy/systemd/hydra.service",
                "deploy/systemd/hydra-agent.service",
                "deploy/systemd/hydra-worker.service",
            ],
        ),
        (
            "lib/systemd/system/hydra-agent.service.d",
            ["deploy/systemd/hydra-agent.service.d/containers.conf"],
        ),
        ("share/hydra/configs", sorted(f"configs/{file.name}" for file in HERE.glob("configs/*"))),
        (
            "share/hydra/prometheus",
            ["deploy/prometheus/hydra.rules.yml", "deploy/prometheus/prometheus.yml"],
        ),
        ("share/hydra/grafana", ["deploy/grafana/hydra.json"]),
        (
            "share/hydra/three-machines",
            ["deploy/three-machines/controller.yaml", "deploy/three-machines/etcd"],
        ),
    ],
    entry_points={
        "console_scripts": [
            "hydra = apps.start:hydra",
            "ryu-manager = apps.start:ryu_manager",
        ],
        "hydra.commands": ["experiment = mininet_scenarios.cli:experiment"],
    },
)
