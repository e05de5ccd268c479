"""The files of a queue on disk and in memory: mapped, locked, listed, made."""
