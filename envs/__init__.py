"""Environments: worlds to act in, tasks with references, outcomes by execution."""
