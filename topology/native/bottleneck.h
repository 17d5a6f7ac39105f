/* Matchings of rows and columns whose smallest entry is as large as can be. */
#ifndef HYDRA_BOTTLENECK_H
#define HYDRA_BOTTLENECK_H

#include <stdbool.h>
#include <stdint.h>

/* Completes `column_of` (-1 for rows without a column) with entries of at least `start`, or, only
   where that fails, of less, but never less than `least`, which is above zero; entries below what
   it has come to are given up first. Where `all_or_nothing`, the first row that can't be matched
   ends the search.

   Returns the smallest entry allowed in the end, which is as large as any matching of as many rows
   could have, or -1 without memory; `*matched` is the number of rows with a column. */
int64_t widest_matching(int32_t n, const int64_t *entry, int64_t start, int64_t least,
                        bool all_or_nothing, int32_t *column_of, int32_t *matched);

/* Raises entries, those above zero first, until every row and column that `row_lacks` and
   `column_lacks` say lacks something has it. Both sum to the same. */
void stuff(int32_t n, int64_t *entry, int64_t *row_lacks, int64_t *column_lacks);

#endif
