"""A queue of tasks with workers, which outlives its leader: a service on one group."""
