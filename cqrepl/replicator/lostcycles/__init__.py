"""Closed cycles that a host has lost, fetched from others."""
