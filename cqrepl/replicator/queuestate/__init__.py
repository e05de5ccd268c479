"""The state of one queue of this host, streamed or taken in: stopped, paused, fenced, passed on."""
