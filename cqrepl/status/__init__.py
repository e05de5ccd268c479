"""What a running host can say of itself, and how it is asked."""
