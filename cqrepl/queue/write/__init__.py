"""Writes queues: appends, closes cycles, makes files ahead of time, deletes old ones."""
