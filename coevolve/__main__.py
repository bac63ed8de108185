"""`python -m coevolve`."""

from coevolve.cli import main

main()
