"""Expressions to machine code. Nothing here knows an operator by name; only this layer imports llvmlite."""
