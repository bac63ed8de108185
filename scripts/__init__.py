"""Programs for the maintainers: the demo, and what writes the data files."""
