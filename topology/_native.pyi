"""Compiled kernels (topology/native); arrays are C-contiguous, of the types named, and checked."""

from numpy import float64, int8, int32, int64, uint8, uint64
from numpy.typing import NDArray

def plan_paths(
    n_racks: int,
    n_planes: int,
    n_classes: int,
    port_rack: NDArray[int32],
    port_plane: NDArray[int32],
    port_class: NDArray[int32],
    port_mbps: NDArray[float64],
    is_free: NDArray[uint8],
    standing_a: NDArray[int32],
    standing_b: NDArray[int32],
    preferred_a: NDArray[int32],
    preferred_b: NDArray[int32],
    pair_src: NDArray[int32],
    pair_dst: NDArray[int32],
    pair_class: NDArray[int32],
    pair_mbps: NDArray[float64],
    max_hops: int,
    whole: bool,
    partial: bool,
    widest: bool,
    direct_cap: NDArray[int32],
    may_relay: NDArray[uint8],
    link_a: NDArray[int32],
    link_b: NDArray[int32],
    residual_mbps: NDArray[float64],
    path_pair: NDArray[int32],
    path_hops: NDArray[int32],
    path_links: NDArray[int32],
    path_mbps: NDArray[float64],
    /,
) -> tuple[int, int]:
    """Run the rounds; writes the last seven, and returns how many links and paths are there."""

def improve_links(
    n_racks: int,
    n_planes: int,
    port_rack: NDArray[int32],
    port_plane: NDArray[int32],
    port_mbps: NDArray[float64],
    is_free: NDArray[uint8],
    pair_src: NDArray[int32],
    pair_dst: NDArray[int32],
    pair_mbps: NDArray[float64],
    open_mbps: NDArray[float64],
    open_paths: NDArray[int32],
    standing_paths: NDArray[int32],
    max_hops: int,
    whole: bool,
    mate: NDArray[int32],
    disturbance_mbps: NDArray[float64],
    steps: int,
    reroute_steps: int,
    seed: int,
    n_fixed: int,
    n_links: int,
    link_a: NDArray[int32],
    link_b: NDArray[int32],
    capacity_mbps: NDArray[float64],
    path_pair: NDArray[int32],
    path_hops: NDArray[int32],
    path_links: NDArray[int32],
    worth_mbps: NDArray[float64],
    /,
) -> tuple[int, int, int]:
    """Rewire circuits while that serves more; writes the last seven. Returns how many circuits and
    paths there are, and how many circuits were looked at.
    """

def serve_paths(
    residual_mbps: NDArray[float64],
    start: NDArray[int32],
    link: NDArray[int32],
    order: NDArray[int32],
    pair: NDArray[int32],
    share_mbps: NDArray[float64],
    given_mbps: NDArray[float64],
    /,
) -> None:
    """Book paths in this order on their links; writes the first array and the last one."""

def walk_paths(
    n_racks: int,
    port_rack: NDArray[int32],
    hop_start: NDArray[int32],
    hop_a: NDArray[int32],
    hop_b: NDArray[int32],
    src: NDArray[int32],
    dst: NDArray[int32],
    rack: NDArray[int32],
    is_broken: NDArray[uint8],
    /,
) -> None:
    """Write the racks that paths visit, and 1 for each path that breaks or ends elsewhere."""

def pack_paths(
    n_racks: int,
    n_circuits: int,
    rivals: NDArray[int32],
    hop_start: NDArray[int32],
    circuit: NDArray[int32],
    rack: NDArray[int32],
    residents: NDArray[int32],
    n_occupied: int,
    order: NDArray[int32],
    bin_of: NDArray[int32],
    /,
) -> int:
    """First fit in this order; writes ``bin_of`` and returns the number of bins."""

def carry_vlans(
    n_ports: int,
    n_vlans: int,
    hop_start: NDArray[int32],
    hop_a: NDArray[int32],
    hop_b: NDArray[int32],
    vlan: NDArray[int32],
    carries: NDArray[uint64],
    /,
) -> None:
    """Put the VLAN of each path into the bit sets of its ports, ``carries``."""

def hold_circuits_back(
    n_racks: int,
    port_rack: NDArray[int32],
    a: NDArray[int32],
    b: NDArray[int32],
    is_fixed: NDArray[uint8],
    n_vlans: int,
    carries: NDArray[uint64],
    is_held: NDArray[uint8],
    /,
) -> None:
    """VLAN by VLAN, hold circuits back that could close a loop; writes ``is_held``."""

def tag_ports(
    n_ports: int,
    n_vlans: int,
    hop_start: NDArray[int32],
    hop_a: NDArray[int32],
    hop_b: NDArray[int32],
    vlan: NDArray[int32],
    carries: NDArray[uint64],
    /,
) -> None:
    """Tag the ports of each path with its VLAN; skips ports that don't exist."""

def find_strays(
    n_racks: int,
    port_rack: NDArray[int32],
    hop_start: NDArray[int32],
    hop_a: NDArray[int32],
    hop_b: NDArray[int32],
    src: NDArray[int32],
    dst: NDArray[int32],
    is_stray: NDArray[uint8],
    /,
) -> None:
    """Write 1 for each path that breaks, ends elsewhere or visits a rack twice."""

def list_domains(
    n_ports: int,
    n_vlans: int,
    carries: NDArray[uint64],
    a: NDArray[int32],
    b: NDArray[int32],
    start: NDArray[int32],
    circuit: NDArray[int32],
    /,
) -> int:
    """Circuits with both ports in a VLAN, by VLAN; writes ``start``, and ``circuit`` if there is
    room for all. Returns their number.
    """

def find_loops(
    n_racks: int,
    port_rack: NDArray[int32],
    start: NDArray[int32],
    a: NDArray[int32],
    b: NDArray[int32],
    closes: NDArray[int32],
    /,
) -> None:
    """Circuits that close a loop with earlier ones of their domain; writes ``closes``."""

def book_turns(
    left: NDArray[float64],
    start: NDArray[int32],
    circuit: NDArray[int32],
    path: NDArray[int32],
    part: NDArray[float64],
    share: NDArray[float64],
    given: NDArray[float64],
    /,
) -> None:
    """Each turn's path takes a part of its share; lowers ``left``, raises ``given``."""

def assign_rows(
    n: int, weight: NDArray[float64], price: NDArray[float64], column_of: NDArray[int32], /
) -> None:
    """The heaviest assignment; raises ``price`` and writes ``column_of``."""

def colour_edges(
    n_rows: int,
    n_columns: int,
    n_colours: int,
    rows: NDArray[int32],
    columns: NDArray[int32],
    at_row: NDArray[int32],
    at_column: NDArray[int32],
    colour: NDArray[int32],
    /,
) -> None:
    """Colour edges in their order; writes the last three."""

def improve_network(
    begin: bool,
    n_rows: int,
    n_nodes: int,
    tail: NDArray[int32],
    head: NDArray[int32],
    gain: NDArray[int64],
    flow: NDArray[int8],
    at: NDArray[int8],
    spare: NDArray[int64],
    potential: NDArray[int64],
    parent: NDArray[int32],
    via: NDArray[int32],
    depth: NDArray[int32],
    child: NDArray[int32],
    following: NDArray[int32],
    preceding: NDArray[int32],
    /,
) -> None:
    """Network simplex, from a greedy flow where it begins; writes all from ``flow`` on."""

def widest_matching(
    n: int,
    entry: NDArray[int64],
    start: NDArray[int64],
    least: NDArray[int64],
    all_or_nothing: bool,
    column_of: NDArray[int32],
    /,
) -> tuple[int, int]:
    """The smallest entry allowed, and how many rows have a column; writes ``column_of``."""

def stuff(
    n: int, entry: NDArray[int64], row_lacks: NDArray[int64], column_lacks: NDArray[int64], /
) -> None:
    """Raise entries until nothing is lacking; writes all three."""
