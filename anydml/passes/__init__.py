"""Graph to graph, whatever the operators are, one idea a file."""
