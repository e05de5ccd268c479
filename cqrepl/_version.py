"""The version, alone in a file so that reading it loads nothing else."""

VERSION = "0.1.0"
