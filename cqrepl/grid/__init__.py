"""Maps in memory on several hosts: transactions, synchronous replicas, preload, reads by token.

>>> import cqrepl.grid
>>> with cqrepl.grid.local() as grid, grid.session() as s:
...     s.map("orders").put("A-17", 3)
...     s.map("orders").get("A-17")
3
"""

from cqrepl.grid.localgrid import LocalGrid, local

__all__ = ["LocalGrid", "local"]
