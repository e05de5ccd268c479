"""Queues that come in: what a sink does on each of its connections."""
