"""Alarms, metrics, health and pages: all that an operator sees of a running host.

Alarms take no library; the rest takes the extra `page`, and is imported only where it is asked for.
"""
