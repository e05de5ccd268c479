"""The configuration of a cluster: Chronicle's file, our own keys in it, and variables."""
