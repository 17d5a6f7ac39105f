/* Local search on the circuits of a plan; see topology/anytime.py for its purpose. */
#ifndef HYDRA_IMPROVE_H
#define HYDRA_IMPROVE_H

#include <stdbool.h>
#include <stdint.h>

#include "multihop.h"

enum { LONGEST_PATH = 3 }; /* hops: longer paths are not searched for here */

/* Demands in serving order. */
typedef struct {
    int32_t count;
    const int32_t *src, *dst;
    const double *mbps;      /* a pair's whole demand */
    const double *open_mbps; /* the part open to new paths */
    const int32_t *open_paths, *standing_paths;
} DemandList;

/* Circuits: the first n_fixed stay. Room for n_fixed + n_ports / 2. */
typedef struct {
    int32_t n_fixed, n_links;
    int32_t *link_a, *link_b;
    double *capacity_mbps; /* for new paths */
} Links;

/* Paths found for the circuits, at most `room` of them. */
typedef struct {
    int32_t room, count;
    int32_t *pair, *hops, *links; /* LONGEST_PATH links a path, in hop order */
} Found;

typedef struct {
    int32_t max_hops;
    bool whole;                /* a demand counts only if a single path carries all */
    const int32_t *mate;       /* per port: the other end of its circuit in use, or -1 */
    double disturbance_mbps;   /* cost of giving up a circuit in use */
    int32_t steps, seed;       /* most circuits looked at; start of the random moves */
    int32_t reroute_steps;     /* most circuits looked at for new paths on the same topology */
} Search;

/* Rewires circuits on their planes while more is served. `is_free` (n_ports) is true where new
   circuits may end, under circuits that may change, too. Writes the best circuits found, their
   paths, and their worth in Mbps: demand served, less the cost of circuits given up. Returns the
   number of circuits looked at, or -1 without memory. */
int32_t improve_links(const Wiring *wiring, const uint8_t *is_free, DemandList demands,
                      const Search *search, Links *links, Found *found, double *worth);

#endif
