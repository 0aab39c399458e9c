"""Graphs as one function of machine code: values, element-wise loops, products, branches and loops."""
