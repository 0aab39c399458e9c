"""What DirectML's documents say, as records. Nothing here computes on tensors or knows a backend."""
