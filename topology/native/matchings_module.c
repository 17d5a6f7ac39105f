#include "matchings_module.h"

#include <stdlib.h>

#include "assignment.h"
#include "bottleneck.h"
#include "colouring.h"
#include "simplex.h"

static int64_t *longs(Arguments *arguments, int32_t *count, int writable)
{
    return next_array(arguments, sizeof(int64_t), count, writable);
}

static int32_t *indices_out(Arguments *arguments, int32_t *count, int32_t lowest, int32_t end)
{
    int32_t *values = integers_out(arguments, count);
    check_range(arguments, values, *count, lowest, end);
    return values;
}

static int8_t *bytes_out(Arguments *arguments, int32_t *count, int8_t lowest, int8_t highest)
{
    int8_t *values = next_array(arguments, sizeof(int8_t), count, 1);
    for (int32_t i = 0; values && i < *count; i++)
        if (values[i] < lowest || values[i] > highest) {
            fail(arguments, "has an entry out of range");
            return NULL;
        }
    return values;
}

/* The entries of a matrix; too many to index are refused. */
static int32_t cells(Arguments *arguments, int32_t rows, int32_t columns)
{
    if (columns && rows > INT32_MAX / columns)
        fail(arguments, "belongs to too large a matrix");
    return arguments->failed ? 0 : rows * columns;
}

PyObject *py_assign_rows(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n = integer(&a, 0), n_cells = cells(&a, n, n);
    const double *weight = doubles(&a, &n_cells);
    double *price = doubles_out(&a, &n);
    int32_t *column_of = integers_out(&a, &n);
    if (!a.failed) {
        int result;
        Py_BEGIN_ALLOW_THREADS;
        result = assign_rows(n, weight, price, column_of);
        Py_END_ALLOW_THREADS;
        if (result)
            fail_for_memory(&a);
    }
    return ended(&a);
}

PyObject *py_colour_edges(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_rows = integer(&a, 0), n_columns = integer(&a, 0);
    Colouring c = {.n_edges = -1};
    c.n_colours = integer(&a, 0);
    c.row = indices(&a, &c.n_edges, n_rows);
    c.column = indices(&a, &c.n_edges, n_columns);
    int32_t row_cells = cells(&a, n_rows, c.n_colours);
    c.at_row = indices_out(&a, &row_cells, COLOUR_ABSENT, COLOUR_FREE + 1);
    int32_t column_cells = cells(&a, n_columns, c.n_colours);
    c.at_column = indices_out(&a, &column_cells, COLOUR_ABSENT, COLOUR_FREE + 1);
    c.colour = indices_out(&a, &c.n_edges, -1, 0);
    if (!a.failed) {
        int result;
        Py_BEGIN_ALLOW_THREADS;
        result = colour_edges(&c);
        Py_END_ALLOW_THREADS;
        if (result)
            fail_for_memory(&a);
    }
    return ended(&a);
}

PyObject *py_improve_network(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t begin = integer(&a, 0);
    Network net = {.n_edges = -1};
    net.n_rows = integer(&a, 0);
    net.n_nodes = integer(&a, 0);
    if (!a.failed && net.n_rows > net.n_nodes)
        fail(&a, "is fewer nodes than rows");
    int32_t with_root = net.n_nodes + 1;
    net.tail = indices(&a, &net.n_edges, net.n_rows);
    net.head = next_array(&a, sizeof(int32_t), &net.n_edges, 0);
    check_range(&a, net.head, net.n_edges, net.n_rows, net.n_nodes);
    net.gain = longs(&a, &net.n_edges, 0);
    net.flow = bytes_out(&a, &net.n_edges, 0, 1);
    net.at = bytes_out(&a, &net.n_edges, -1, 1);
    net.spare = longs(&a, &net.n_nodes, 1);
    net.potential = longs(&a, &with_root, 1);
    net.parent = indices_out(&a, &with_root, 0, with_root);
    net.via = indices_out(&a, &with_root, -1, net.n_edges);
    net.depth = integers_out(&a, &with_root);
    net.child = indices_out(&a, &with_root, -1, with_root);
    net.following = indices_out(&a, &with_root, -1, with_root);
    net.preceding = indices_out(&a, &with_root, -1, with_root);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        if (begin)
            start_greedily(&net);
        improve(&net);
        Py_END_ALLOW_THREADS;
    }
    return ended(&a);
}

/* A column in two rows would have the search for a path run in circles. */
static void check_distinct(Arguments *arguments, const int32_t *column_of, int32_t n)
{
    if (arguments->failed || !n)
        return;
    uint8_t *seen = calloc((size_t)n, sizeof *seen);
    if (!seen) {
        fail_for_memory(arguments);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        if (column_of[i] >= 0 && seen[column_of[i]]++)
            fail(arguments, "has a column twice");
    free(seen);
}

PyObject *py_widest_matching(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n = integer(&a, 0), n_cells = cells(&a, n, n), one = 1, matched = 0;
    const int64_t *entry = longs(&a, &n_cells, 0);
    const int64_t *start = longs(&a, &one, 0), *least = longs(&a, &one, 0);
    int32_t all_or_nothing = integer(&a, 0);
    int32_t *column_of = indices_out(&a, &n, -1, n);
    check_distinct(&a, column_of, n);
    int64_t level = -1;
    if (!a.failed && (*start < 1 || *least < 1))
        fail(&a, "follows levels that are not above zero");
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        level = widest_matching(n, entry, *start, *least, all_or_nothing, column_of, &matched);
        Py_END_ALLOW_THREADS;
        if (level < 0)
            fail_for_memory(&a);
    }
    release(&a);
    return a.failed ? NULL : Py_BuildValue("Li", (long long)level, (int)matched);
}

PyObject *py_stuff(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n = integer(&a, 0), n_cells = cells(&a, n, n);
    int64_t *entry = longs(&a, &n_cells, 1);
    int64_t *row_lacks = longs(&a, &n, 1), *column_lacks = longs(&a, &n, 1);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        stuff(n, entry, row_lacks, column_lacks);
        Py_END_ALLOW_THREADS;
    }
    return ended(&a);
}
