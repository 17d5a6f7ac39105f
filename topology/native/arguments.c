#include "arguments.h"

#include <stdbool.h>

void release(Arguments *arguments)
{
    while (arguments->count)
        PyBuffer_Release(&arguments->views[--arguments->count]);
}

PyObject *ended(Arguments *arguments)
{
    release(arguments);
    if (arguments->failed)
        return NULL;
    Py_RETURN_NONE;
}

void fail(Arguments *arguments, const char *what)
{
    if (!arguments->failed)
        PyErr_Format(PyExc_ValueError, "argument %zd %s", arguments->position, what);
    arguments->failed = 1;
}

void fail_for_memory(Arguments *arguments)
{
    PyErr_NoMemory();
    arguments->failed = 1;
}

void *next_array(Arguments *arguments, size_t size, int32_t *count, int writable)
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

const double *doubles(Arguments *arguments, int32_t *count)
{
    return next_array(arguments, sizeof(double), count, 0);
}

double *doubles_out(Arguments *arguments, int32_t *count)
{
    return next_array(arguments, sizeof(double), count, 1);
}

int32_t *integers_out(Arguments *arguments, int32_t *count)
{
    return next_array(arguments, sizeof(int32_t), count, 1);
}

void check_range(Arguments *arguments, const int32_t *values, int32_t count, int32_t lowest,
                        int32_t end)
{
    bool outside = false; /* all entries are read, so that the compiler compares many at a time */
    for (int32_t i = 0; values && i < count; i++)
        outside |= (values[i] < lowest) | (values[i] >= end);
    if (outside)
        fail(arguments, "has an entry out of range");
}

const int32_t *indices(Arguments *arguments, int32_t *count, int32_t end)
{
    const int32_t *values = next_array(arguments, sizeof(int32_t), count, 0);
    check_range(arguments, values, *count, 0, end);
    return values;
}

const int32_t *starts(Arguments *arguments, int32_t *lists, int32_t *end)
{
    int32_t count = -1;
    const int32_t *values = next_array(arguments, sizeof(int32_t), &count, 0);
    if (!values)
        return NULL;
    int rising = count > 0 && values[0] == 0;
    for (int32_t i = 1; i < count; i++)
        rising &= values[i] >= values[i - 1];
    if (!rising) {
        fail(arguments, "does not rise from 0");
        return NULL;
    }
    *lists = count - 1;
    *end = values[count - 1];
    return values;
}

int32_t integer(Arguments *arguments, int32_t lowest)
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
