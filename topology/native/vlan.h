/* First fit of paths into loop-free VLANs; see topology/vlan.py for the meaning. */
#ifndef HYDRA_VLAN_H
#define HYDRA_VLAN_H

#include <stdint.h>

/* Paths in a row: path i has the hops start[i] .. start[i + 1] - 1, each from a port to another. */
typedef struct {
    int32_t count;
    const int32_t *start, *a, *b;
} Hops;

/* Writes the racks that path i visits from its rack `src`, to rack[start[i] + i] .. rack[start[i +
   1] + i], and 1 to is_broken[i] if the hops do not lead from rack to rack, to `dst` in the end,
   else 0. */
void walk_paths(const int32_t *port_rack, Hops paths, const int32_t *src, const int32_t *dst,
                int32_t *rack, uint8_t *is_broken);

/* Paths in a row: the circuit of each hop, and the racks as walk_paths() writes them. */
typedef struct {
    int32_t count;
    const int32_t *start, *circuit, *rack;
} PathList;

typedef struct {
    int32_t n_racks, n_circuits;
    const int32_t *rivals; /* (circuit, end): the circuit at the port that a leaving circuit joins
                              with this end, or -1 */
} Ground;

/* Packs the paths named in `order` after `n_residents`, which stay in the bins given by `bin_of` (0
   .. n_occupied - 1). Each path goes into the first bin with all its circuits, else, among bins
   that stay a forest, into the first with the fewest missing circuits, else into a new bin. Writes
   bin_of[path] for each; returns the number of bins, or -1 without memory. */
int32_t pack_paths(const Ground *ground, PathList paths, const int32_t *residents,
                   int32_t n_residents, int32_t n_occupied, const int32_t *order, int32_t n_order,
                   int32_t *bin_of);

#endif
