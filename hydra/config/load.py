"""Load a YAML file as a frozen fabric, a policy and the controller settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hydra.columns import no_cycles
from hydra.config import addresses, attachment, checks
from hydra.config.devices import PlaneCheck, RackCheck
from hydra.config.expand import Expansion, expand, too_large
from hydra.config.problems import ProblemLog
from hydra.config.schema import Document, parse_document
from hydra.config.source import YamlDocument, YamlError, parse_yaml, read_text
from hydra.config.store import read_store
from hydra.config.workers import read_workers
from hydra.errors import ConfigError, Problem
from hydra.model import Fabric, SubstrateKind, VlanId, VlanRange
from hydra.policy import Policy
from hydra.settings import ControllerSettings


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration file."""

    fabric: Fabric
    policy: Policy
    controller: ControllerSettings
    source: str
    """Name of the file."""
    warnings: tuple[Problem, ...] = ()
    """Permitted settings that are usually mistakes."""


def load(
    path: Path,
    *,
    optical_drivers: Mapping[str, PlaneCheck],
    tor_drivers: Mapping[str, RackCheck],
    algorithms: Mapping[str, checks.Objection],
    spares: Callable[[str], bool] = lambda _algorithm: False,
) -> Loaded:
    """Read and check ``path``. The mappings hold the permitted names: drivers with device checks,
    algorithms with objections to a fabric. ``spares`` is true for an algorithm that respects
    ``policy.disturbance_mbps``.

    Raises ConfigError with all problems, each with path and line in the file.
    """
    with no_cycles():  # nearly all new objects stay
        return _load(path, optical_drivers, tor_drivers, algorithms, spares)


def _load(
    path: Path,
    optical_drivers: Mapping[str, PlaneCheck],
    tor_drivers: Mapping[str, RackCheck],
    algorithms: Mapping[str, checks.Objection],
    spares: Callable[[str], bool],
) -> Loaded:
    source = str(path)
    yaml = _read(path, source)
    log, warnings = ProblemLog(), ProblemLog()
    for key in yaml.key_problems:
        log.add(key.path, key.message)
    if not isinstance(yaml.data, dict):
        if not log:
            log.add((), "must be a mapping with the sections fabric, racks, planes, wiring, …")
        raise ConfigError(source, log.problems(yaml))

    parsed = parse_document(yaml.data)
    for problem in parsed.problems:
        log.add(problem.path, problem.message)
    if parsed.more:
        log.count_more(parsed.more)
        raise ConfigError(source, log.problems(yaml))
    document, broken = parsed.document, parsed.broken
    checks.check_drivers(document, optical_drivers, tor_drivers, log)
    if "policy" not in broken:
        checks.check_policy(document.policy, algorithms, log, warnings)
        checks.warn_of_disturbance(document.policy, algorithms, spares, warnings)
    openflow, rest = checks.check_controller(document, log, warnings)
    etcd = read_store(document.controller.store, log)
    workers = read_workers(document.controller.workers, log)
    if too_large(document, log):
        raise ConfigError(source, log.problems(yaml))
    expansion = expand(document, broken, log)
    vlans, parking = _check_fabric(document, broken, expansion, log, warnings)
    checks.check_devices(expansion, optical_drivers, tor_drivers, log)
    if log:
        raise ConfigError(source, log.problems(yaml))
    fabric = _freeze_fabric(document, expansion, vlans, parking)
    checks.check_algorithm(document.policy.algorithm, algorithms, fabric, log)
    checks.check_slots(document.policy, fabric, log)
    if log:
        raise ConfigError(source, log.problems(yaml))
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in document.controller
        if key not in {"openflow", "rest", "store", "workers"}
    }
    return Loaded(
        fabric=fabric,
        policy=document.policy,
        controller=ControllerSettings(
            *openflow,
            *rest,
            **settings,
            etcd=etcd,
            workers=workers,
        ),
        source=source,
        warnings=warnings.problems(yaml),
    )


def _read(path: Path, source: str) -> YamlDocument:
    try:
        return parse_yaml(read_text(path))
    except OSError as error:
        _refuse(source, f"can't be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        _refuse(source, f"is not UTF-8 text: {error.reason} at byte {error.start}")
    except YamlError as error:
        _refuse(source, str(error), error.line)


def _refuse(source: str, message: str, line: int | None = None) -> NoReturn:
    raise ConfigError(source, [Problem("", message, line)]) from None


def _check_fabric(
    document: Document,
    broken: frozenset[str],
    expansion: Expansion,
    log: ProblemLog,
    warnings: ProblemLog,
) -> tuple[VlanRange, VlanId]:
    attachment.check_substrate(document, broken, log)
    checks.check_not_empty(document, broken, log)
    checks.check_rack_kinds(document, log)
    checks.check_guests(document, broken, log, warnings)
    checks.warn_of_tags(document, broken, warnings)
    checks.check_unique(expansion, log)
    checks.check_interface_names(document, expansion, log)
    checks.check_wiring(expansion, log)
    subnets = addresses.read_subnets(document, log)
    addresses.check_prefixes(expansion, subnets, log)
    addresses.check_server_addresses(expansion, subnets, log, warnings)
    addresses.check_one_subnet(expansion, log)
    vlans, parking = checks.check_vlans(document, expansion, broken, log)
    addresses.warn_of_strangers(expansion, warnings)
    checks.warn_unwired(expansion, warnings)
    return vlans, parking


def _freeze_fabric(
    document: Document,
    expansion: Expansion,
    vlans: VlanRange,
    parking: VlanId,
) -> Fabric:
    return Fabric(
        name=document.fabric,
        racks=tuple(rack for rack, _, _ in expansion.racks),
        planes=tuple(plane for plane, _, _ in expansion.planes),
        ports=tuple(port for port, _, _ in expansion.ports),
        circuit_vlans=vlans,
        parking_vlan=parking,
        electrical_rate_mbps=document.electrical.rate_mbps,
        server_rate_mbps=document.server_rate_mbps,
        substrate=SubstrateKind(document.substrate),
        one_way=document.circuits == "unidirectional",
    )
