"""Storages: their records, their state, and what a program has of them."""
