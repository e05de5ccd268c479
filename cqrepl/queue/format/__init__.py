"""The format of a queue as plain values and bytes: touches no file."""
