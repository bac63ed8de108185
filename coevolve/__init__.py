"""The command line, and the loop that ties the other packages together."""
