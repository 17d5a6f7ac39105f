#!/bin/sh
# What each algorithm would make of a skewed demand on 16 racks and 4 planes of 10 Gb/s.
set -eu
hydra plan --fabric 16x4@10000 --demand gravity --seed 7 --load 0.5 --compare
