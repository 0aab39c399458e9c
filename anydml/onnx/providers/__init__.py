"""Libraries that run the operators anydml does not exist for."""
