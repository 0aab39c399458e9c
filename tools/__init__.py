"""What writes files of this repository: fits, generated code, generated documentation."""
