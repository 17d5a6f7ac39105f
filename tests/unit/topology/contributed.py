"""Algorithms that another package might contribute."""

from topology.algorithms import Entry
from topology.multihop import keep_current

MINE = Entry(keep_current, "nothing at all", "this file")
