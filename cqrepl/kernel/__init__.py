"""The work that is done once for each excerpt, in plain Python and Rust, with the same results."""
