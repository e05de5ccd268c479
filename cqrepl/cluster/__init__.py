"""The succession of leaders of a queue: asked for, promised, decided and done."""
