#include "serve.h"

void serve_paths(const int32_t *start, const int32_t *link, const int32_t *order, int32_t n_order,
                 const int32_t *pair, double *residual_mbps, const double *share_mbps,
                 double *given_mbps)
{
    for (int32_t i = 0; i < n_order; i++) {
        int32_t path = order[i];
        double given = share_mbps[pair[path]];
        for (int32_t l = start[path]; l < start[path + 1]; l++)
            if (residual_mbps[link[l]] < given)
                given = residual_mbps[link[l]];
        for (int32_t l = start[path]; l < start[path + 1]; l++)
            residual_mbps[link[l]] -= given;
        given_mbps[path] += given;
    }
}
