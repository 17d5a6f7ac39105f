/* Matchings, colourings and flows for Python. */
#ifndef HYDRA_MATCHINGS_MODULE_H
#define HYDRA_MATCHINGS_MODULE_H

#include "arguments.h"

PyObject *py_assign_rows(PyObject *self, PyObject *args);
PyObject *py_colour_edges(PyObject *self, PyObject *args);
PyObject *py_improve_network(PyObject *self, PyObject *args);
PyObject *py_widest_matching(PyObject *self, PyObject *args);
PyObject *py_stuff(PyObject *self, PyObject *args);

#endif
