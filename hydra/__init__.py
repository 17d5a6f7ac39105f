"""HydRA's core: the model of a hybrid network and the decisions about it.

Nothing here opens a socket, reads a clock or draws a random number; the outermost package,
``apps``, hands those in.
"""

__version__ = "0.1.0"
