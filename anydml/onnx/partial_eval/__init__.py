"""What is known of values before a run, and graphs that know it."""
