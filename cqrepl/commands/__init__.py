"""The work behind each command; its options are in `cqrepl.cli`."""
