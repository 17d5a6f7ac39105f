"""Packaging. The distribution is not called ``hydra``: Debian and PyPI have others of that name."""

import re
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (HERE / "hydra/__init__.py").read_text())


def requirements(section: int) -> list[str]:
    """A section of requirements.txt, the only place where versions are written; 0: run time."""
    text = (HERE / "requirements.txt").read_text()
    chosen = text.split("\n\n")[section]
    lines = (line.split("#", 1)[0].strip() for line in chosen.splitlines())
    return [line for line in lines if line]


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
        ]
    ),
    package_data={
        "apps.prices": ["data/*.yaml"],
        "apps.rest": ["static/*"],
        "apps.traces": ["data/*.txt"],
        "mininet_scenarios.emulators": ["yang/*.yang"],
        "mininet_scenarios.experiments": ["templates/*.j2"],
        "mininet_scenarios.stage": ["*.c"],
        "mininet_scenarios.workloads": ["*.c"],
    },
    ext_modules=[
        Extension(
            "topology._native",  # see docs/decisions/0006-compiled-kernels-in-c.md
            sources=sorted(str(c.relative_to(HERE)) for c in HERE.glob("topology/native/*.c")),
            depends=sorted(str(h.relative_to(HERE)) for h in HERE.glob("topology/native/*.h")),
            # Sums must not depend on the machine: no fused multiply-add.
            extra_compile_args=["-std=c11", "-O3", "-ffp-contract=off", "-Wall", "-Wextra"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    install_requires=requirements(0),
    extras_require={
        "experiments": requirements(1),
        "tracing": requirements(2),
        "sonic": requirements(3),
    },
    entry_points={
        "console_scripts": [
            "hydra = apps.cli:main",
            "ryu-manager = apps.launcher:ryu_manager",
        ],
        "hydra.commands": ["experiment = mininet_scenarios.cli:experiment"],
    },
)
