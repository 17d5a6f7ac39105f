/* The Python side of the kernels: buffers in, counts out. Every length and every index is checked
   here, so that the kernels need not; they run without the interpreter lock. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>

#include "multihop.h"
#include "serve.h"
#include "vlan.h"

enum { MAX_VIEWS = 24 };

/* The buffers of one call. After the first failure, an exception is set and the rest is NULL. */
typedef struct {
    Py_buffer views[MAX_VIEWS];
    int count;
    PyObject *args;
    Py_ssize_t position;
    int failed;
} Arguments;

static void release(Arguments *arguments)
{
    while (arguments->count)
        PyBuffer_Release(&arguments->views[--arguments->count]);
}

static void fail(Arguments *arguments, const char *what)
{
    if (!arguments->failed)
        PyErr_Format(PyExc_ValueError, "argument %zd %s", arguments->position, what);
    arguments->failed = 1;
}

/* The next argument, which must be a contiguous array of items of this size; `*count` of them, or
   as many as there are if it is negative. */
static void *next_array(Arguments *arguments, size_t size, int32_t *count, int writable)
{
    PyObject *object = PyTuple_GetItem(arguments->args, arguments->position++);
    Py_buffer *view = &arguments->views[arguments->count];
    if (arguments->failed)
        return NULL;
    int flags = writable ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_C_CONTIGUOUS;
    if (!object || PyObject_GetBuffer(object, view, flags)) {
        arguments->failed = 1;
        return NULL;
    }
    arguments->count++;
    Py_ssize_t items = view->len / (Py_ssize_t)size;
    if (view->itemsize != (Py_ssize_t)size)
        fail(arguments, "has items of the wrong size");
    else if (items > INT32_MAX)
        fail(arguments, "is too long");
    else if (*count < 0)
        *count = (int32_t)items;
    else if (*count != items)
        fail(arguments, "has the wrong length");
    return arguments->failed ? NULL : view->buf;
}

static const double *doubles(Arguments *arguments, int32_t *count)
{
    return next_array(arguments, sizeof(double), count, 0);
}

static double *doubles_out(Arguments *arguments, int32_t *count)
{
    return next_array(arguments, sizeof(double), count, 1);
}

static int32_t *integers_out(Arguments *arguments, int32_t *count)
{
    return next_array(arguments, sizeof(int32_t), count, 1);
}

static void check_range(Arguments *arguments, const int32_t *values, int32_t count, int32_t lowest,
                        int32_t end)
{
    for (int32_t i = 0; values && i < count; i++)
        if (values[i] < lowest || values[i] >= end) {
            fail(arguments, "has an entry out of range");
            return;
        }
}

/* Integers from 0 to end - 1. */
static const int32_t *indices(Arguments *arguments, int32_t *count, int32_t end)
{
    const int32_t *values = next_array(arguments, sizeof(int32_t), count, 0);
    check_range(arguments, values, *count, 0, end);
    return values;
}

/* Where each of some lists begins in an array of `end` entries; one more entry is the end. */
static const int32_t *starts(Arguments *arguments, int32_t *lists, int32_t *end)
{
    int32_t count = -1;
    const int32_t *values = next_array(arguments, sizeof(int32_t), &count, 0);
    if (!values)
        return NULL;
    int rising = count > 0 && values[0] == 0;
    for (int32_t i = 1; rising && i < count; i++)
        rising = values[i] >= values[i - 1];
    if (!rising) {
        fail(arguments, "does not rise from 0");
        return NULL;
    }
    *lists = count - 1;
    *end = values[count - 1];
    return values;
}

static int32_t integer(Arguments *arguments, int32_t lowest)
{
    PyObject *object = PyTuple_GetItem(arguments->args, arguments->position++);
    if (arguments->failed)
        return lowest;
    long value = object ? PyLong_AsLong(object) : -1;
    if (PyErr_Occurred()) {
        arguments->failed = 1;
        return lowest;
    }
    if (value < lowest || value > INT32_MAX)
        fail(arguments, "is out of range");
    return (int32_t)value;
}

static PyObject *py_plan_paths(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Wiring w = {.n_racks = integer(&a, 0), .n_planes = integer(&a, 0), .n_classes = integer(&a, 1)};
    w.n_ports = -1;
    w.port_rack = indices(&a, &w.n_ports, w.n_racks);
    w.port_plane = indices(&a, &w.n_ports, w.n_planes);
    w.port_class = indices(&a, &w.n_ports, w.n_classes - 1);
    w.port_mbps = doubles(&a, &w.n_ports);
    const uint8_t *is_free = next_array(&a, sizeof(uint8_t), &w.n_ports, 0);
    CircuitList standing = {.count = -1}, preferred = {.count = -1};
    standing.a = indices(&a, &standing.count, w.n_ports);
    standing.b = indices(&a, &standing.count, w.n_ports);
    preferred.a = indices(&a, &preferred.count, w.n_ports);
    preferred.b = indices(&a, &preferred.count, w.n_ports);
    PairList pairs = {.count = -1};
    pairs.src = indices(&a, &pairs.count, w.n_racks);
    pairs.dst = indices(&a, &pairs.count, w.n_racks);
    pairs.port_class = indices(&a, &pairs.count, w.n_classes);
    pairs.mbps = doubles(&a, &pairs.count);
    Rules rules = {.max_hops = integer(&a, 1)};
    rules.whole = integer(&a, 0);
    rules.partial = integer(&a, 0);
    rules.widest = integer(&a, 0);
    rules.direct_cap = indices(&a, &w.n_racks, INT32_MAX);
    int32_t n_links = -1, n_hops = -1;
    Plan plan = {.link_a = integers_out(&a, &n_links)};
    plan.link_b = integers_out(&a, &n_links);
    plan.residual_mbps = doubles_out(&a, &n_links);
    plan.path_pair = integers_out(&a, &pairs.count);
    plan.path_hops = integers_out(&a, &pairs.count);
    plan.path_links = integers_out(&a, &n_hops);
    if (!a.failed && n_links < (int64_t)standing.count + w.n_ports / 2)
        fail(&a, "leaves too little room for links");
    if (!a.failed && n_hops < (int64_t)pairs.count * rules.max_hops)
        fail(&a, "leaves too little room for hops");
    if (!a.failed) {
        PlanStatus status;
        Py_BEGIN_ALLOW_THREADS;
        status = plan_paths(&w, is_free, standing, preferred, pairs, &rules, &plan);
        Py_END_ALLOW_THREADS;
        if (status == PLAN_NO_MEMORY)
            PyErr_NoMemory();
        else if (status == PLAN_BROKEN)
            PyErr_SetString(PyExc_RuntimeError, "circuits that share a port");
        a.failed = status != PLAN_DONE;
    }
    release(&a);
    return a.failed ? NULL : Py_BuildValue("ii", plan.n_links, plan.n_paths);
}

static PyObject *py_serve_paths(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    int32_t n_links = -1, n_paths = 0, n_hops = 0, n_order = -1, n_pairs = -1;
    double *residual = doubles_out(&a, &n_links);
    const int32_t *start = starts(&a, &n_paths, &n_hops);
    const int32_t *link = indices(&a, &n_hops, n_links);
    const int32_t *order = indices(&a, &n_order, n_paths);
    const int32_t *pair = next_array(&a, sizeof(int32_t), &n_paths, 0);
    double *wanted = doubles_out(&a, &n_pairs);
    double *given = doubles_out(&a, &n_paths);
    for (int32_t i = 0; !a.failed && i < n_order; i++)
        check_range(&a, pair + order[i], 1, 0, n_pairs);
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        serve_paths(start, link, order, n_order, pair, residual, wanted, given);
        Py_END_ALLOW_THREADS;
    }
    release(&a);
    if (a.failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_pack_paths(PyObject *self, PyObject *args)
{
    (void)self;
    Arguments a = {.args = args};
    Ground ground = {.n_racks = integer(&a, 0), .n_ports = -1};
    if (ground.n_racks > UINT16_MAX)
        fail(&a, "is more racks than the VLAN tables hold (65535)");
    ground.once_joined = next_array(&a, sizeof(int32_t), &ground.n_ports, 0);
    check_range(&a, ground.once_joined, ground.n_ports, -1, ground.n_ports);
    PathList paths = {.count = 0};
    int32_t n_hops = 0;
    paths.hop_start = starts(&a, &paths.count, &n_hops);
    paths.hop_a = indices(&a, &n_hops, ground.n_ports);
    paths.hop_b = indices(&a, &n_hops, ground.n_ports);
    int32_t n_visits = n_hops + paths.count;
    paths.rack = indices(&a, &n_visits, ground.n_racks);
    int32_t n_residents = -1, n_order = -1;
    const int32_t *residents = indices(&a, &n_residents, paths.count);
    int32_t n_occupied = integer(&a, 0);
    const int32_t *order = indices(&a, &n_order, paths.count);
    int32_t *bin_of = integers_out(&a, &paths.count);
    for (int32_t i = 0; !a.failed && i < n_residents; i++)
        check_range(&a, bin_of + residents[i], 1, 0, n_occupied);
    int32_t n_bins = 0;
    if (!a.failed) {
        Py_BEGIN_ALLOW_THREADS;
        n_bins = pack_paths(&ground, paths, residents, n_residents, n_occupied, order, n_order,
                            bin_of);
        Py_END_ALLOW_THREADS;
        if (n_bins < 0) {
            PyErr_NoMemory();
            a.failed = 1;
        }
    }
    release(&a);
    return a.failed ? NULL : PyLong_FromLong(n_bins);
}

static PyMethodDef methods[] = {
    {"plan_paths", py_plan_paths, METH_VARARGS, "The rounds of the HydRA heuristic."},
    {"serve_paths", py_serve_paths, METH_VARARGS, "What paths get of their demand, in turn."},
    {"pack_paths", py_pack_paths, METH_VARARGS, "First fit of paths into loop-free VLANs."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "topology._native",
    .m_doc = "Compiled kernels of the topology engine.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module); }
