"""Elections: which host asks for promises, and when. Whom the copies have promised, leads."""
