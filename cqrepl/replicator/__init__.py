"""The work of a host on queues: sources and sinks, and the API for programs."""
