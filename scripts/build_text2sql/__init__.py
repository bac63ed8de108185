"""Checks the hand-written questions of text2sql and writes its data files."""
