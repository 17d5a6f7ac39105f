/* Colours for the edges of a bipartite multigraph, no two alike at a node. */
#ifndef HYDRA_COLOURING_H
#define HYDRA_COLOURING_H

#include <stdint.h>

enum { COLOUR_FREE = -1, COLOUR_ABSENT = -2 };

typedef struct {
    int32_t n_edges, n_colours;
    const int32_t *row, *column; /* the ends of each edge */
    int32_t *at_row, *at_column; /* per node and colour: an edge, COLOUR_FREE or COLOUR_ABSENT */
    int32_t *colour;             /* of each edge; -1 for none */
} Colouring;

/* Colours the edges in their order; `colour` is -1 everywhere at first. Returns 0, or -1 without
   memory. */
int colour_edges(const Colouring *c);

#endif
