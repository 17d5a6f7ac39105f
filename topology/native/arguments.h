/* The arguments of a call from Python: arrays and integers, checked. */
#ifndef HYDRA_ARGUMENTS_H
#define HYDRA_ARGUMENTS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <stdint.h>

enum { MAX_VIEWS = 24 };

/* The buffers of a call. After the first failure, an exception is set and the rest is NULL. */
typedef struct {
    Py_buffer views[MAX_VIEWS];
    int count;
    PyObject *args;
    Py_ssize_t position;
    int failed;
} Arguments;

void release(Arguments *arguments);

/* Releases the buffers of a call without a result: None, or NULL after a failure. */
PyObject *ended(Arguments *arguments);

void fail(Arguments *arguments, const char *what);

void fail_for_memory(Arguments *arguments);

/* The next argument, which must be a contiguous array of items of the given size; of `*count`
   items, or of any number if `*count` is negative. */
void *next_array(Arguments *arguments, size_t size, int32_t *count, int writable);

const double *doubles(Arguments *arguments, int32_t *count);

double *doubles_out(Arguments *arguments, int32_t *count);

int32_t *integers_out(Arguments *arguments, int32_t *count);

void check_range(Arguments *arguments, const int32_t *values, int32_t count, int32_t lowest,
                        int32_t end);

/* Integers from 0 to end - 1. */
const int32_t *indices(Arguments *arguments, int32_t *count, int32_t end);

/* Start of each list in an array of `end` entries; a final entry holds the end. */
const int32_t *starts(Arguments *arguments, int32_t *lists, int32_t *end);

int32_t integer(Arguments *arguments, int32_t lowest);

#endif
