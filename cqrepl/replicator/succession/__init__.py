"""Who is to lead a queue: asked, promised, decided and done."""
