"""Documents as typed data: fields by path, conditions over them, schemas, files of rows."""
