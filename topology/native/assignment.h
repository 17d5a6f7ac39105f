/* The heaviest assignment of rows to columns (Jonker and Volgenant, Computing 38, 1987). */
#ifndef HYDRA_ASSIGNMENT_H
#define HYDRA_ASSIGNMENT_H

#include <stdint.h>

/* `weight` is n by n. Raises `price` from a first guess as needed, and writes the column of each
   row, so that no row would gain more, weight less price, in another column. Returns 0, or -1
   without memory. */
int assign_rows(int32_t n, const double *weight, double *price, int32_t *column_of);

#endif
