"""Looks into a queue without opening it as one: what it holds, what is wrong, what can be repaired.

documentwalk               the walk over documents, by pread
storescan, pagescan        one store file, its index pages; tablescan: the table store
findings, overview         what is wrong; all of a queue directory
verification               copies of a queue compared, and one queue held against itself:
  cyclecomparison            one cycle of all copies, read by copyreader; halved by bisection
  diagnosis, differences     what a difference is named, and where it is
  notedchains                what replication has noted beside the store files
  quickcomparison            the same without reading an excerpt
closedfiles                the watch over closed store files
repairplan                 what can be put right, planned and done

Only `repairplan` locks and writes; nothing here maps a file that may be damaged.
"""
