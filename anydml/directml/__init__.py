"""DirectML: descriptions, validation, type inference and fusion of its operators."""
