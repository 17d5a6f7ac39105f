"""Price files: read, checked as a whole, frozen. The package contains the papers' price files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hydra.config.problems import ProblemLog
from hydra.config.source import YamlError, parse_yaml, read_text
from hydra.errors import ConfigError, Problem, UnknownName
from hydra.names import did_you_mean

SHIPPED: Final = ("hydra-2015", "helios-2010")
"""Names of the price files in the package."""

Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, gt=0, le=1_000_000)]
Ratio = Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)]
HydraTerm = Literal["rack", "server", "plane", "rack_plane"]
FatTreeTerm = Literal["rack", "server", "rack_middle", "server_middle", "rack_top", "server_top"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Item(_Section):
    """An item to buy: price and power, and the number needed for each network."""

    what: str = Field(min_length=1)
    usd: Amount
    watt: Amount = 0.0
    replaced: Annotated[bool, Field(strict=True)] = False
    """True for an item that a higher rate replaces."""
    hydra: Mapping[HydraTerm, Amount] = Field(default_factory=dict)
    fat_tree: Mapping[FatTreeTerm, Amount] = Field(default_factory=dict)


class PublishedPair(_Section):
    """A published comparison: HydRA with ``planes`` planes against a fat tree."""

    planes: int = Field(ge=0)
    oversubscription: Ratio
    cheaper_percent: float
    where: str


class RackPrices(_Section):
    """Parts and prices of racks joined by planes, or by a fat tree (HydRA, JOCN 2015, Table I)."""

    model: Literal["racks"]
    title: str
    racks: Count
    servers_per_rack: Count
    plane_ports: Annotated[int, Field(strict=True, ge=2, le=1_000_000)] | None = None
    """Ports of an optical switch; more racks need several switches a plane. None: as many ports
    as racks.
    """
    items: Mapping[str, Item] = Field(min_length=1)
    planes: tuple[Annotated[int, Field(ge=0, le=4096)], ...] = Field(min_length=1)
    oversubscription: tuple[Ratio, ...] = Field(min_length=1)
    published: tuple[PublishedPair, ...] = ()


class Part(_Section):
    """Price of a piece, and the power drawn."""

    usd: Amount
    watt: Amount


class Transceiver(Part):
    """A transceiver of one wavelength; ``superlink`` transceivers share a fibre and a circuit
    port.
    """

    superlink: Count


class PublishedPods(_Section):
    """An electrical network's figures over Helios', and Helios' savings."""

    cost_factor: Positive
    power_factor: Positive
    port_factor: Positive
    saved_usd: Positive
    saved_watt: Positive
    saved_ports: Positive
    best_superlinks: tuple[Count, ...] = Field(min_length=1)


class PodPrices(_Section):
    """Parts that join pods through packet and circuit switches (Helios, SIGCOMM 2010, 3.2)."""

    model: Literal["pods"]
    title: str
    pods: int = Field(ge=2, le=1024)
    hosts_per_pod: int = Field(ge=1, le=16_384)
    packet_port: Part
    circuit_port: Part
    fibre: Part
    transceivers: tuple[Transceiver, ...] = Field(min_length=1)
    destinations: tuple[Count, ...] = Field(min_length=1)
    """Numbers of pods that a host sends to at a time."""
    changes: int = Field(ge=1, le=1000)
    seed: int = Field(ge=0)
    published: PublishedPods | None = None


PriceFile = RackPrices | PodPrices
_READER: Final[TypeAdapter[PriceFile]] = TypeAdapter(
    Annotated[PriceFile, Field(discriminator="model")]
)


def shipped_text(name: str) -> str:
    """A price file of the package, to be copied and edited. Raises UnknownName."""
    if name not in SHIPPED:
        hint = did_you_mean(name, SHIPPED)
        raise UnknownName(
            f"no price file {name!r}{hint}: give a path, or one of {', '.join(SHIPPED)}"
        )
    file = resources.files("apps.prices").joinpath("data", f"{name}.yaml")
    return file.read_text(encoding="utf-8")


def read_prices(name: str) -> PriceFile:
    """The price file at a path, or of the package.

    Raises ConfigError with every problem in the file, each with its line; UnknownName if ``name``
    is neither a file nor in :data:`SHIPPED`.
    """
    path = Path(name)
    if name in SHIPPED or not (path.exists() or path.suffix or len(path.parts) > 1):
        return parse_prices(shipped_text(name), name)
    try:
        text = read_text(path)
    except OSError as error:
        _refuse(name, f"can't be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        _refuse(name, f"is not UTF-8 text: {error.reason} at byte {error.start}")
    except YamlError as error:
        _refuse(name, str(error))
    return parse_prices(text, name)


def parse_prices(text: str, source: str) -> PriceFile:
    """The content of a price file; ``source`` is the name in messages. Raises ConfigError."""
    try:
        document = parse_yaml(text)
    except YamlError as error:
        _refuse(source, str(error), error.line)
    log = ProblemLog()
    for key in document.key_problems:
        log.add(key.path, key.message)
    if not isinstance(document.data, dict) and not log:
        log.add((), "must be a mapping with the first key model: racks, or model: pods")
    if log:
        raise ConfigError(source, log.problems(document))
    try:
        prices = _READER.validate_python(document.data)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            # The first step is the model's name, absent from the file.
            where = tuple(step for step in problem["loc"][1:] if step != "[key]")
            log.add(where, f"{problem['msg']}, and not {problem['input']!r:.60}")
        raise ConfigError(source, log.problems(document)) from None
    _check_together(prices, log)
    if log:
        raise ConfigError(source, log.problems(document))
    return prices


def _check_together(prices: PriceFile, log: ProblemLog) -> None:
    """Log problems between two values."""
    if isinstance(prices, RackPrices):
        for network in ("hydra", "fat_tree"):
            if not any(getattr(item, network) for item in prices.items.values()):
                log.add(("items",), f"no item says how many pieces {network} needs")
        ports = prices.plane_ports or prices.racks
        most = max(ports, ports * (ports // 2))
        if prices.racks > most:
            log.add(
                ("plane_ports",),
                f"two levels of switches of {ports} ports join {most} racks at most, "
                f"not {prices.racks}: give more ports",
            )
        return
    for position, count in enumerate(prices.destinations):
        if count >= prices.pods:
            log.add(
                ("destinations", position),
                f"a host can send to {prices.pods - 1} other pods, not to {count}",
            )
    sizes = [transceiver.superlink for transceiver in prices.transceivers]
    for position, size in enumerate(sizes):
        if size in sizes[:position]:
            log.add(("transceivers", position), f"superlink {size} stands twice: remove one")
    for size in prices.published.best_superlinks if prices.published else ():
        if size not in sizes:
            log.add(("published", "best_superlinks"), f"no transceiver has superlink {size}")


def _refuse(source: str, message: str, line: int | None = None) -> NoReturn:
    raise ConfigError(source, [Problem("", message, line)]) from None
