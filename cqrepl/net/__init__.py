"""Bytes and peers, on trio: connections from the first dial to the orderly end. Knows no queue."""
