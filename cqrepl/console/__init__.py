"""Helpers that commands share: exit codes, output, progress, units, payloads as text."""
