"""This project and its peers in one interleaved run, against the goals that it has set itself."""
