"""Held-out suites, played and scored with intervals."""
