"""Rows, their journal (the truth), its DuckDB index, signals in SQL, and snapshots."""
