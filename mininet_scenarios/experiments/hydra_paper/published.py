"""Figures of the papers for comparison with this project's figures, each with a source."""

from __future__ import annotations

from typing import Final

HYDRA: Final = "Christodoulopoulos et al., HydRA, JOCN 2015"

# HydRA, section V.B and Fig. 9(a): iperf between two racks, topology changed every 10 s.
FIG9A_SOURCE: Final = f"{HYDRA}, section V.B, Fig. 9(a)"
FIG9A_PERIOD_S: Final = 10.0
FIG9A_STATIC_GBPS: Final = 9.21
FIG9A_100_RULES_GBPS: Final = 8.37
FIG9A_5000_RULES_GBPS: Final = 7.86
FIG9A_100_RULES_DELAY_S: Final = 1.2
FIG9A_5000_RULES_DELAY_S: Final = 2.2
FIG9A_TAGGING_S: Final = 1.2
"""Time to tag the ToR ports of Fig. 8(a); the paper gives "below 1.5 s" for 32 (III.B.1)."""

FIG9A_SHARES: Final = {
    100: FIG9A_100_RULES_GBPS / FIG9A_STATIC_GBPS,
    5000: FIG9A_5000_RULES_GBPS / FIG9A_STATIC_GBPS,
}
"""Average throughput relative to the static topology, by rules pushed in substep 3-2."""

FIG9A_DELAYS_S: Final = {100: FIG9A_100_RULES_DELAY_S, 5000: FIG9A_5000_RULES_DELAY_S}

# HydRA, section V.B and Fig. 9(b): FFTW on two racks, background traffic between racks 2 and 3.
FIG9B_SOURCE: Final = f"{HYDRA}, section V.B, Fig. 9(b)"
FIG9B_ALONE_S: Final = 28.7
FIG9B_CONGESTED_S: Final = 62.2
FIG9B_HYDRA_S: Final = 36.7
FIG9B_TRIGGER_S: Final = 15.0
"""Time at which the paper's authors triggered the change by hand."""
FIG9B_CONGESTED_RATIO: Final = FIG9B_CONGESTED_S / FIG9B_ALONE_S
FIG9B_HYDRA_RATIO: Final = FIG9B_HYDRA_S / FIG9B_ALONE_S
