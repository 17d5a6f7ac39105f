/* The heaviest edges of a bipartite graph within the degrees of its nodes: network simplex. */
#ifndef HYDRA_SIMPLEX_H
#define HYDRA_SIMPLEX_H

#include <stdint.h>

/* Nodes are the rows, then the columns, then the root. Besides the edges, a slack edge joins each
   row to the root and the root to each column, and takes the remaining degree. */
typedef struct {
    int32_t n_rows, n_nodes, n_edges; /* the root is node n_nodes */
    const int32_t *tail, *head;       /* the row, and the node of the column */
    const int64_t *gain;
    int8_t *flow, *at;  /* 0 or 1; `at` is 1 for edges not taken, -1 for taken, 0 in the tree */
    int64_t *spare;     /* flow of each node's slack edge */
    int64_t *potential; /* price of a row, minus the price of a column, 0 for the root */
    int32_t *parent, *via, *depth; /* `via` joins a node to its parent; -1 is its slack edge */
    int32_t *child, *following, *preceding; /* -1 for none */
} Network;

/* Takes edges in their order while degrees allow, and builds the tree. */
void start_greedily(Network *net);

/* Pivots until no edge would help. */
void improve(Network *net);

#endif
