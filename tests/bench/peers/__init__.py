"""The peers that cqrepl is compared with: other ways to get the same bytes to another host.

Each module runs one peer on loopback, in its best case, and gives what it found as numbers by name.
`missing` says why a peer cannot run here, `INSTALL` how to get it, `COMMANDS` what is run.
"""
