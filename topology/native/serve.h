/* How much of its demand each pair gets when paths in turn take what is left on their links. */
#ifndef HYDRA_SERVE_H
#define HYDRA_SERVE_H

#include <stdint.h>

/* Path i has the links link[start[i]] .. link[start[i + 1] - 1]. In this order, each takes what
   its pair still wants from each of them, up to what the scarcest has. */
void serve_paths(const int32_t *start, const int32_t *link, const int32_t *order, int32_t n_order,
                 const int32_t *pair, double *residual_mbps, double *wanted_mbps,
                 double *given_mbps);

#endif
