"""The progress of each host with each queue, in marks and in numbers."""
