/* The Python side of the lines. The GIL is held throughout: no function waits for more than one
   system call of the thread, and releasing the GIL would cost the caller its turn. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdlib.h>

#include "lines.h"

typedef struct {
    PyObject_HEAD
    Lines *lines; /* NULL once closed */
} Object;

static Lines *open_lines(PyObject *self)
{
    Lines *lines = ((Object *)self)->lines;
    if (!lines)
        PyErr_SetString(PyExc_ValueError, "the lines are closed");
    return lines;
}

static PyObject *create(PyTypeObject *type, PyObject *args, PyObject *names)
{
    static char *keys[] = {"echo_s", "unanswered", "stalled_s", "most_ready",
                           "most_ready_in_all", "most_waiting", "messages_per_s", "burst", NULL};
    Limits limits;
    Py_ssize_t ready, ready_in_all, waiting;
    if (!PyArg_ParseTupleAndKeywords(args, names, "didnnndd:Lines", keys, &limits.echo_s,
                                     &limits.unanswered, &limits.stalled_s, &ready,
                                     &ready_in_all, &waiting, &limits.messages_per_s,
                                     &limits.burst))
        return NULL;
    if (!(limits.echo_s > 0 && limits.stalled_s > 0 && ready > 0 && ready_in_all > 0 &&
          waiting > 0 && limits.messages_per_s > 0 && limits.burst >= 1)) {
        PyErr_SetString(PyExc_ValueError, "times, sizes and rates have to be more than 0");
        return NULL;
    }
    limits.most_ready = (size_t)ready;
    limits.most_ready_in_all = (size_t)ready_in_all;
    limits.most_waiting = (size_t)waiting;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self = allocate(type, 0);
    if (!self)
        return NULL;
    ((Object *)self)->lines = lines_open(&limits);
    if (!((Object *)self)->lines) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    return self;
}

static PyObject *py_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    Lines *lines = ((Object *)self)->lines;
    ((Object *)self)->lines = NULL;
    if (lines)
        lines_close(lines); /* the thread can end without the GIL */
    Py_RETURN_NONE;
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (((Object *)self)->lines)
        lines_close(((Object *)self)->lines);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *py_fileno(PyObject *self, PyObject *unused)
{
    (void)unused;
    Lines *lines = open_lines(self);
    return lines ? PyLong_FromLong(lines_descriptor(lines)) : NULL;
}

static PyObject *py_adopt(PyObject *self, PyObject *args)
{
    int descriptor;
    Py_buffer greeting;
    Lines *lines = open_lines(self);
    if (!lines || !PyArg_ParseTuple(args, "iy*:adopt", &descriptor, &greeting))
        return NULL;
    uint64_t line = lines_adopt(lines, descriptor, greeting.buf, (size_t)greeting.len);
    PyBuffer_Release(&greeting);
    return line ? PyLong_FromUnsignedLongLong(line) : PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *py_send(PyObject *self, PyObject *args)
{
    unsigned long long line;
    Py_buffer data;
    int last = 0;
    Lines *lines = open_lines(self);
    if (!lines || !PyArg_ParseTuple(args, "Ky*|p:send", &line, &data, &last))
        return NULL;
    int done = lines_send(lines, line, data.buf, (size_t)data.len, last);
    PyBuffer_Release(&data);
    return PyBool_FromLong(done);
}

static PyObject *py_ignore(PyObject *self, PyObject *args)
{
    unsigned long long line;
    Lines *lines = open_lines(self);
    if (!lines || !PyArg_ParseTuple(args, "K:ignore", &line))
        return NULL;
    lines_ignore(lines, line);
    Py_RETURN_NONE;
}

static PyObject *py_release(PyObject *self, PyObject *args)
{
    unsigned long long line;
    Lines *lines = open_lines(self);
    if (!lines || !PyArg_ParseTuple(args, "K:release", &line))
        return NULL;
    lines_release(lines, line);
    Py_RETURN_NONE;
}

/* Messages as a list of bytes; each has the length in its header. */
static PyObject *split(const Taken *taken)
{
    PyObject *messages = PyList_New(0);
    for (size_t at = 0; messages && at + HEADER_BYTES <= taken->size;) {
        size_t length = (size_t)taken->messages[at + 2] << 8 | taken->messages[at + 3];
        if (length < HEADER_BYTES || length > taken->size - at)
            break;
        const char *start = (const char *)taken->messages + at;
        PyObject *message = PyBytes_FromStringAndSize(start, (Py_ssize_t)length);
        if (!message || PyList_Append(messages, message))
            Py_CLEAR(messages);
        Py_XDECREF(message);
        at += length;
    }
    return messages;
}

static PyObject *py_take(PyObject *self, PyObject *args)
{
    int most_lines, most;
    Lines *lines = open_lines(self);
    if (!lines || !PyArg_ParseTuple(args, "ii:take", &most_lines, &most))
        return NULL;
    if (most < 1) {
        PyErr_SetString(PyExc_ValueError, "at least one message has to be taken at a time");
        return NULL;
    }
    PyObject *all = PyList_New(0);
    Taken taken;
    for (int i = 0; all && i < most_lines && lines_take(lines, most, &taken); i++) {
        PyObject *messages = split(&taken);
        free(taken.messages);
        PyObject *one = messages ? Py_BuildValue("KNii", (unsigned long long)taken.line, messages,
                                                 (int)taken.end, taken.error)
                                 : NULL;
        if (!one || PyList_Append(all, one))
            Py_CLEAR(all);
        Py_XDECREF(one);
    }
    return all;
}

static PyMethodDef methods[] = {
    {"fileno", py_fileno, METH_NOARGS, "Readable while there is something to take."},
    {"adopt", py_adopt, METH_VARARGS, "Begin to serve a connected socket; its line."},
    {"send", py_send, METH_VARARGS, "Send on a line; False if it has ended."},
    {"ignore", py_ignore, METH_VARARGS, "Hear no more of a line than its echoes."},
    {"release", py_release, METH_VARARGS, "Forget a line."},
    {"take", py_take, METH_VARARGS, "Messages of lines whose turn it is."},
    {"close", py_close, METH_NOARGS, "End the thread."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Connections to OpenFlow switches, served by a thread of its own."},
    {Py_tp_new, create},
    {Py_tp_dealloc, destroy},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "apps.openflow._lines.Lines",
    .basicsize = sizeof(Object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

static int fill(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int failed = !type || PyModule_AddObjectRef(module, "Lines", type);
    Py_XDECREF(type);
    failed = failed || PyModule_AddIntConstant(module, "OPEN", LINE_OPEN) ||
             PyModule_AddIntConstant(module, "CLOSED", LINE_CLOSED) ||
             PyModule_AddIntConstant(module, "FAILED", LINE_FAILED) ||
             PyModule_AddIntConstant(module, "SILENT", LINE_SILENT) ||
             PyModule_AddIntConstant(module, "STALLED", LINE_STALLED) ||
             PyModule_AddIntConstant(module, "FLOODED", LINE_FLOODED) ||
             PyModule_AddIntConstant(module, "MALFORMED", LINE_MALFORMED) ||
             PyModule_AddIntConstant(module, "FOREIGN", LINE_FOREIGN);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "apps.openflow._lines",
    .m_doc = "Lines to OpenFlow switches.",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__lines(void) { return PyModuleDef_Init(&module); }
