"""What is so of one queue of this host, either way: stopped, paused, fenced, passed on."""
