#ifndef HYDRA_CHECKS_H
#define HYDRA_CHECKS_H

#include <stdbool.h>
#include <stdint.h>

/* Paths in a row: path i has the hops start[i] .. start[i + 1] - 1, each from one port to another. */
typedef struct {
    int32_t count;
    const int32_t *start, *hop_a, *hop_b;
} Tagged;

/* VLANs of each port, a bit each: `words` words a port. */
typedef struct {
    int32_t n_ports, words;
    uint64_t *bits;
} Membership;

/* Puts the ports of each path into the path's VLAN; ports that don't exist are left out. */
void tag_ports(Tagged paths, const int32_t *vlan, Membership ports);

/* Writes 1 to is_stray[p] if path p breaks, comes to a port that doesn't exist, visits a rack twice,
   or ends at another rack than `dst`, else 0. False if memory runs out. */
bool find_strays(int32_t n_racks, int32_t n_ports, const int32_t *port_rack, Tagged paths,
                 const int32_t *src, const int32_t *dst, uint8_t *is_stray);

/* Circuits with both ports in a VLAN, VLAN after VLAN, each VLAN's in order: writes start[v], for
   each VLAN and the end, and if there are `room` in all, the circuits. Returns the number of all
   circuits. */
int64_t list_domains(Membership ports, int32_t n_vlans, int32_t n_circuits, const int32_t *a,
                     const int32_t *b, int32_t *start, int32_t room, int32_t *circuit);

/* Domains of circuits in a row; domain i has the circuits start[i] .. start[i + 1] - 1. */
typedef struct {
    const int32_t *start;
    int32_t count;
    const int32_t *a, *b; /* ports of each circuit */
} Domains;

/* Writes 1 to closes[c] if earlier circuits of its domain that share no port with c join the two
   racks of c, else 0. False if memory runs out. */
bool find_loops(int32_t n_racks, const int32_t *port_rack, Domains domains, int32_t *closes);

/* Turns of paths, in order. */
typedef struct {
    int32_t count;
    const int32_t *path;
    const double *part; /* of the path's share */
} Turns;

/* In each turn, a path p takes a part of its share from all of its circuits, from
   circuit[start[p]] to circuit[start[p + 1] - 1], limited by the scarcest circuit, and adds the
   amount to given[p]. */
void book_turns(const int32_t *start, const int32_t *circuit, Turns turns, const double *share,
                double *left, double *given);

#endif
