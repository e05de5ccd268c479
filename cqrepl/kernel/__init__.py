"""What happens once for each excerpt, in plain Python and in Rust, with the same results."""
