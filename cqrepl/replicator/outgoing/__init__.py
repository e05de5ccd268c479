"""Queues that go out: what a source does on each of its connections."""
