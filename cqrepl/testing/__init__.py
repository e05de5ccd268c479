"""Whole hosts in one thread, from one seed: see docs/laboratory.md."""
