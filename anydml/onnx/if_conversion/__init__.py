"""An If as both branches and a selection."""
