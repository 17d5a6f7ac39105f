/* The rounds of the HydRA heuristic on arrays; see topology/multihop.py for what they mean. */
#ifndef HYDRA_MULTIHOP_H
#define HYDRA_MULTIHOP_H

#include <stdbool.h>
#include <stdint.h>

/* Rates that differ by less are equal; RATE_TOLERANCE_MBPS of topology/problem.py. */
#define RATE_TOLERANCE_MBPS 1e-6

/* The wiring. A port's class says how many of the fabric's distinct rates are lower than its own.
   One more class, n_classes - 1, stands for rates that no port has. */
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

/* Who wants how much of whom, in the order in which they are served. */
typedef struct {
    int32_t count;
    const int32_t *src, *dst;
    const int32_t *port_class; /* of the ports that carry all that is wanted */
    const double *mbps;
} PairList;

typedef struct {
    int32_t max_hops;
    bool whole;                /* rounds in which every hop must carry all that is wanted */
    bool partial;              /* (then) rounds in which anything above zero serves */
    bool widest;               /* relays with the most left, not those with the lowest numbers */
    const int32_t *direct_cap; /* ports per rack that round 1 may take */
    const uint8_t *may_relay;  /* per rack; two that may not get a new circuit only if they fill it */
} Rules;

/* What was planned. Room for n_ports / 2 links, and for a path per pair. */
typedef struct {
    int32_t n_links, n_paths;
    int32_t *link_a, *link_b; /* the standing circuits, then the new ones */
    double *residual_mbps;    /* per link; filled in for the standing ones by the caller */
    int32_t *path_pair;       /* index of the pair */
    int32_t *path_hops;
    int32_t *path_links; /* max_hops per path, in hop order from src to dst */
} Plan;

typedef enum {
    PLAN_DONE,
    PLAN_NO_MEMORY,
    PLAN_BROKEN, /* two circuits share a port, or a path was found that could not be booked */
} PlanStatus;

/* `is_free` (n_ports) says where new circuits may end; `preferred` are taken before others, the
   first first. */
PlanStatus plan_paths(const Wiring *wiring, const uint8_t *is_free, CircuitList standing,
                      CircuitList preferred, PairList pairs, const Rules *rules, Plan *plan);

#endif
