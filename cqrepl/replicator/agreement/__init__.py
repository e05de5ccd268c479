"""What two hosts find out before anything moves: is it one queue, and what do both hold."""
