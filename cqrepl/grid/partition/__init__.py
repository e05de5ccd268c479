"""The parts of one partition: its state, its locks, and how a transaction is committed."""
