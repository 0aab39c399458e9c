"""What DirectML's documents say, as definitions. Nothing here computes on tensors or knows a backend."""
