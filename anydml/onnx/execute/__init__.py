"""Graphs to plans, and plans to results."""
