"""LangGraph Studio: the dev server with the workspace's store attached, in a venv of its own."""
