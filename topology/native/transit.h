#ifndef HYDRA_TRANSIT_H
#define HYDRA_TRANSIT_H

#include <stdbool.h>
#include <stdint.h>

#include "bits.h"

/* Paths in a row: path i has the hops start[i] .. start[i + 1] - 1, each from one port to another,
   and a VLAN. */
typedef struct {
    int32_t count;
    const int32_t *start, *hop_a, *hop_b, *vlan;
} VlanPaths;

/* Sets of VLANs that each port may carry: `words` words a port. */
typedef struct {
    int32_t n_vlans, words;
    word *sets;
} PortVlans;

typedef struct {
    int32_t n_racks;
    const int32_t *port_rack;
    int32_t n_circuits;
    const int32_t *a, *b;    /* ports of each circuit */
    const uint8_t *is_fixed; /* circuits that can't be held back */
} Change;

/* Puts the VLAN of each path into the sets of the path's ports. */
void carry_vlans(VlanPaths paths, PortVlans ports);

/* Takes the circuits of each VLAN in turn: both ports carry the VLAN. A circuit that is not fixed, and closes a loop with
   circuits of the VLAN that share no port with it, is held back in every VLAN from then on:
   is_held[c] is 1. False if memory runs out. */
bool hold_circuits_back(const Change *change, PortVlans ports, uint8_t *is_held);

#endif
