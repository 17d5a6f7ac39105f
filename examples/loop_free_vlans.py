"""VLANs for paths that share racks and circuits, each VLAN free of loops (HydRA, Fig. 4).

python examples/loop_free_vlans.py [1-2-4 1-4 ...]; a path names its racks in order.
"""

import sys

from mininet_scenarios.experiments.hydra_paper.fig4 import WALKS, vlans_of

given = [tuple(map(int, path.split("-"))) for path in sys.argv[1:]]
for walk, vlan in vlans_of(given or WALKS):
    print(f"VLAN {vlan}:", " - ".join(f"r{rack}" for rack in walk))
