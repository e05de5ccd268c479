"""The orders that a running host takes at its socket, and what it says of itself."""
