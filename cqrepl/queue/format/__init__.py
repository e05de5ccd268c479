"""What a queue is made of, as plain values and bytes: touches no file."""
