"""Jobs over whole queues, each a function that takes a session and answers with its result."""
