"""One behaviour per file."""
