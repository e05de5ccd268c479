"""Looks into a queue without opening it as one: what it holds, what is wrong, what can be repaired.

documentwalk               the walk over documents, by pread
storescan, pagescan        one store file, its index pages; tablescan: the table store
findings, overview         what is wrong; all of a queue directory
verification               copies of a queue, compared
repair                     what can be put right, planned and done

Only `repair` locks and writes; nothing here maps a file that may be damaged.
"""
