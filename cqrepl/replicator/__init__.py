"""What a host does with queues: sources and sinks, and the API for programs."""
