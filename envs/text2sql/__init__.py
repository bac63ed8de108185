"""Questions about small databases, answered in SQL and scored by execution."""
