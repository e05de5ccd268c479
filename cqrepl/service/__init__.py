"""The parts that all services on groups have in common: who leads, who serves, what clients say."""
