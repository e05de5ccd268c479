"""Brings queues to the disk behind the stream, and tells what a power cut may have taken."""
