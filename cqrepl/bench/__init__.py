"""What `cqrepl bench` measures, with real parts: queues on disk, and processes on loopback.

One module for each thing that is measured; each has functions that do one round and give `Sample`s.
How rounds follow each other, and what is printed, is in `report`.
"""
