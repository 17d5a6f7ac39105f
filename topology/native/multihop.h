/* The rounds of the HydRA heuristic on arrays; see topology/multihop.py for their meaning. */
#ifndef HYDRA_MULTIHOP_H
#define HYDRA_MULTIHOP_H

#include <stdbool.h>
#include <stdint.h>

/* Rates that differ by less are equal; RATE_TOLERANCE_MBPS of topology/problem.py. */
#define RATE_TOLERANCE_MBPS 1e-6

/* The wiring. A port's class is the number of the fabric's distinct rates below the port's rate. A
   further class, n_classes - 1, stands for rates that no port has. */
typedef struct {
    int32_t n_racks, n_planes, n_ports, n_classes;
    const int32_t *port_rack, *port_plane, *port_class;
    const double *port_mbps;
} Wiring;

/* Circuits by their end ports, a < b. */
typedef struct {
    int32_t count;
    const int32_t *a, *b;
} CircuitList;

/* Demands of pairs, in serving order. */
typedef struct {
    int32_t count;
    const int32_t *src, *dst;
    const int32_t *port_class; /* class of ports that carry the whole demand */
    const double *mbps;
} PairList;

typedef struct {
    int32_t max_hops;
    bool whole;                /* rounds in which every hop must carry the whole demand */
    bool partial;              /* (then) rounds in which anything above zero serves */
    bool widest;               /* relays with the most left, not the lowest numbers */
    const int32_t *direct_cap; /* per rack: ports open to round 1 */
    const uint8_t *may_relay;  /* per rack; two non-relays get a new circuit only if filled */
} Rules;

/* The plan. Room for n_ports / 2 links, and for a path per pair. */
typedef struct {
    int32_t n_links, n_paths;
    int32_t *link_a, *link_b; /* the standing circuits, then the new ones */
    double *residual_mbps;    /* per link; filled in for the standing ones by the caller */
    int32_t *path_pair;       /* index of the pair */
    int32_t *path_hops;
    int32_t *path_links; /* max_hops per path, in hop order from src to dst */
    double *path_mbps;   /* taken from each of the path's links */
} Plan;

typedef enum {
    PLAN_DONE,
    PLAN_NO_MEMORY,
    PLAN_BROKEN, /* two circuits share a port, or a path found could not be booked */
} PlanStatus;

/* `is_free` (n_ports): ports where new circuits may end; `preferred` circuits are taken before
   others, in order. */
PlanStatus plan_paths(const Wiring *wiring, const uint8_t *is_free, CircuitList standing,
                      CircuitList preferred, PairList pairs, const Rules *rules, Plan *plan);

#endif
