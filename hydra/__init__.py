"""HydRA's core: the model of a hybrid network, and decisions about the network.

The core opens no socket, reads no clock and draws no random numbers; the outermost package,
``apps``, supplies all three.
"""

__version__ = "0.1.0"
