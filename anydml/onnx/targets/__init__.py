"""What other runtimes take, as tables, and which of them a node meets."""
