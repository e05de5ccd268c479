"""The measurements of `cqrepl bench`, with real parts: queues on disk, and processes on loopback.

There is one module for each thing that is measured. Its functions do one round and give `Sample`s.
The module `report` runs the rounds and prints the results.
"""
