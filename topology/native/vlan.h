/* First fit of paths into loop-free VLANs; see topology/vlan.py for the meaning. */
#ifndef HYDRA_VLAN_H
#define HYDRA_VLAN_H

#include <stdint.h>

/* Paths in a row: path i has the hops hop_start[i] .. hop_start[i + 1] - 1, each from one port to
   another, and the racks rack[hop_start[i] + i] .. rack[hop_start[i + 1] + i]. */
typedef struct {
    int32_t count;
    const int32_t *hop_start, *hop_a, *hop_b, *rack;
} PathList;

/* Writes the racks that each path visits from its rack `src`, in the place of `paths.rack`, and 1 to
   is_broken[path] if the hops do not lead from rack to rack, to `dst` in the end, else 0. */
void walk_paths(const int32_t *port_rack, PathList paths, const int32_t *src, const int32_t *dst,
                int32_t *rack, uint8_t *is_broken);

typedef struct {
    int32_t n_racks, n_ports;
    const int32_t *once_joined; /* per port: the other end of a leaving circuit, or -1 */
} Ground;

/* Packs the paths named in `order` after `n_residents`, which stay in the bins given by `bin_of` (0
   .. n_occupied - 1). Each path goes into the first bin with all its circuits, else, among bins
   that stay a forest, into the first with the fewest missing circuits, else into a new bin. Writes
   bin_of[path] for each; returns the number of bins, or -1 without memory. */
int32_t pack_paths(const Ground *ground, PathList paths, const int32_t *residents,
                   int32_t n_residents, int32_t n_occupied, const int32_t *order, int32_t n_order,
                   int32_t *bin_of);

#endif
