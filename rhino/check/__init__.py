"""Proofs by running: every stage of a program against the stage before it, value by value."""
