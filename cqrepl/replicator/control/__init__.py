"""What a running host is told at its socket, and what it says of itself."""
