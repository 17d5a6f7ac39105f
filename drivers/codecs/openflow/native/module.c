/* The Python side of tables. The interpreter's lock is kept: a table takes only 0.1 ms. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tables.h"

typedef struct {
    PyObject_HEAD
    Table *table;
} Object;

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *keys[] = {"flow_mods", "cookie_mask", NULL};
    Py_buffer mods;
    unsigned long long mask;
    if (!PyArg_ParseTupleAndKeywords(args, names, "y*K:Table", keys, &mods, &mask))
        return NULL;
    TableError error;
    Table *table = table_of(mods.buf, (size_t)mods.len, mask, &error);
    PyBuffer_Release(&mods);
    if (!table) {
        if (error == TABLE_NO_MEMORY)
            return PyErr_NoMemory();
        PyErr_SetString(PyExc_ValueError, "these are no flow-mods that add rules");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (self)
        ((Object *)self)->table = table;
    else
        table_free(table);
    return self;
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (((Object *)self)->table)
        table_free(((Object *)self)->table);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static Py_ssize_t length(PyObject *self)
{
    return (Py_ssize_t)table_count(((Object *)self)->table);
}

static PyObject *py_held_with(PyObject *self, PyObject *args)
{
    PyObject *own;
    Py_buffer body;
    if (!PyArg_ParseTuple(args, "O!y*:held_with", Py_TYPE(self), &own, &body))
        return NULL;
    int held = tables_held(((Object *)self)->table, ((Object *)own)->table, body.buf,
                           (size_t)body.len);
    PyBuffer_Release(&body);
    return held < 0 ? PyErr_NoMemory() : PyBool_FromLong(held);
}

static PyMethodDef methods[] = {
    {"held_with", py_held_with, METH_VARARGS,
     "Whether a reply to OFPMP_FLOW lists these rules and those of the other, and no more."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Rules that flow-mods add."},
    {Py_tp_new, create},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, methods},
    {Py_sq_length, length},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "drivers.codecs.openflow._tables.Table",
    .basicsize = sizeof(Object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int fill(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = !type || PyModule_AddObjectRef(module, "Table", type);
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyObject *py_octets_by_subject(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer body, totals;
    unsigned long long mask;
    if (!PyArg_ParseTuple(args, "y*Kw*:octets_by_subject", &body, &mask, &totals))
        return NULL;
    double oldest_s = octets_by_subject(body.buf, (size_t)body.len, mask, totals.buf,
                                        (size_t)totals.len / sizeof(uint64_t));
    PyBuffer_Release(&totals);
    PyBuffer_Release(&body);
    if (oldest_s >= 0)
        return PyFloat_FromDouble(oldest_s);
    PyErr_SetString(PyExc_ValueError, "the lengths of these entries do not add up");
    return NULL;
}

static PyMethodDef functions[] = {
    {"octets_by_subject", py_octets_by_subject, METH_VARARGS,
     "Adds what entries of flow statistics have counted to the totals of their cookies' subjects."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "drivers.codecs.openflow._tables",
    .m_doc = "Tables of rules, to be recognised in flow statistics.",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__tables(void) { return PyModuleDef_Init(&module); }
