"""Reads queues: forwards, backwards, by time, as columns; counts and compares."""
