/* What each path carries if paths in turn take what is left on their links. */
#ifndef HYDRA_SERVE_H
#define HYDRA_SERVE_H

#include <stdint.h>

/* Path i has the links link[start[i]] .. link[start[i + 1] - 1]. In this order, each path takes its
   pair's share_mbps from all of its links, up to what the scarcest link has left, and adds that to
   given_mbps. */
void serve_paths(const int32_t *start, const int32_t *link, const int32_t *order, int32_t n_order,
                 const int32_t *pair, double *residual_mbps, const double *share_mbps,
                 double *given_mbps);

#endif
