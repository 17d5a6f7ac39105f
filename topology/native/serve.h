/* Rate of each path if paths in turn take the capacity left on their links. */
#ifndef HYDRA_SERVE_H
#define HYDRA_SERVE_H

#include <stdint.h>

/* Path i has the links link[start[i]] .. link[start[i + 1] - 1]. In order, each path takes its
   pair's share_mbps from all of its links, up to the capacity left on the scarcest link, and adds
   the rate to given_mbps. */
void serve_paths(const int32_t *start, const int32_t *link, const int32_t *order, int32_t n_order,
                 const int32_t *pair, double *residual_mbps, const double *share_mbps,
                 double *given_mbps);

#endif
