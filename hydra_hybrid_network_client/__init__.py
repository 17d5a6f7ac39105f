"""A client of HydRA, an SDN controller for hybrid electrical/optical data centre networks::

    from hydra_hybrid_network_client import HydraClient

    with HydraClient() as hydra, hydra.bandwidth("r1", "r2", 40):
        transfer()  # 40 Mb/s are reserved, and released in any case

:class:`AsyncHydraClient` has the same methods for asyncio. HYDRA_URL, HYDRA_TOKEN_FILE and HYDRA_CA
contain the controller's address and credentials. Answers are the models in :mod:`.documents`.
"""

from hydra_hybrid_network_client.asynchronous.client import AsyncHydraClient
from hydra_hybrid_network_client.documents import (
    AnyRacks,
    ConstraintsBody,
    EventKind,
    Gap,
    MatrixEntry,
    Profile,
    Protect,
    Repeat,
    ReservationState,
    ServiceClass,
)
from hydra_hybrid_network_client.errors import (
    BadSetting,
    BadToken,
    BadUrl,
    BadValue,
    ClientError,
    NoAnswer,
    NotActive,
    NoTls,
    NotReached,
    Refused,
    TooLate,
    Untrusted,
)
from hydra_hybrid_network_client.synchronous.client import HydraClient

__version__ = "0.1.0"
__all__ = [
    "AnyRacks",
    "AsyncHydraClient",
    "BadSetting",
    "BadToken",
    "BadUrl",
    "BadValue",
    "ClientError",
    "ConstraintsBody",
    "EventKind",
    "Gap",
    "HydraClient",
    "MatrixEntry",
    "NoAnswer",
    "NoTls",
    "NotActive",
    "NotReached",
    "Profile",
    "Protect",
    "Refused",
    "Repeat",
    "ReservationState",
    "ServiceClass",
    "TooLate",
    "Untrusted",
]
