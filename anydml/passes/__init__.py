"""Graph to graph, one idea a file; `pipeline` is their order."""
