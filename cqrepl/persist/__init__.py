"""Sequences and queues that a backup has when an append returns."""
