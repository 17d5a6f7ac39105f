#ifndef HYDRA_TRANSIT_H
#define HYDRA_TRANSIT_H

#include <stdbool.h>
#include <stdint.h>

/* The circuits that may carry each VLAN, VLAN after VLAN. */
typedef struct {
    const int32_t *start; /* per VLAN, and the end */
    int32_t count;
    const int32_t *circuit;
} VlanCircuits;

typedef struct {
    int32_t n_racks;
    const int32_t *port_rack;
    const int32_t *a, *b;    /* ports of each circuit */
    const uint8_t *is_fixed; /* circuits that can't be held back */
} Change;

/* Takes the circuits of each VLAN in turn. A circuit that is not fixed, and closes a loop with
   circuits of the VLAN that share no port with it, is held back in every VLAN from then on:
   is_held[c] is 1. False if memory runs out. */
bool hold_circuits_back(const Change *change, VlanCircuits vlans, uint8_t *is_held);

#endif
