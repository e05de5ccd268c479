"""The text form of documents: printed (`print_*`), and parsed back into bytes (`parse_*`)."""
