"""Kernels of our making for runs of element-wise operators: found, written in C, compiled."""
