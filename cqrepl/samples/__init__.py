"""Queues that the demonstrations read."""
