"""Graphs as one function of machine code: a loop IR's worth of values, kernels, branches and loops."""
