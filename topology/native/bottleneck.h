/* Matchings of rows and columns whose smallest entry is as large as can be. */
#ifndef HYDRA_BOTTLENECK_H
#define HYDRA_BOTTLENECK_H

#include <stdbool.h>
#include <stdint.h>

/* Completes `column_of` (-1 for rows without a column) with entries of at least `start`. Only if
   this fails, the level is lowered, never below `least`, which is above zero; entries below the
   present level are given up first. With `all_or_nothing`, the first row without a match ends the
   search.

   Returns the smallest entry allowed in the end, as large as in any matching of as many rows, or -1
   without memory; `*matched` is the number of rows with a column. */
int64_t widest_matching(int32_t n, const int64_t *entry, int64_t start, int64_t least,
                        bool all_or_nothing, int32_t *column_of, int32_t *matched);

/* Raises entries, those above zero first, until no row or column lacks anything by `row_lacks` and
   `column_lacks`, which have equal sums. */
void stuff(int32_t n, int64_t *entry, int64_t *row_lacks, int64_t *column_lacks);

#endif
