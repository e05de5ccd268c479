"""How far each host is with each queue, in marks and in numbers."""
