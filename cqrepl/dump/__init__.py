"""`wire-dump`: what queue files, captures and live connections hold, as annotated text or JSON.

documents, streams, files    one document after the other: of anything, a stream, a store file
numbering, routing           what is known about each: its index; csp, cid, handler, round trip
pcap, segments, reassembly, captures    from captured packets to documents
recording, proxy, follow     live: between two hosts, and a queue that grows
quick, hexlines, unrenderable, annotated, plain    the text of long store files, fast
dissector                    the same knowledge for Wireshark
selection, json_lines, printing, inputs, modes, command    which, in which form, from where
"""

from cqrepl.dump.documentreader import Document, DocumentReader
from cqrepl.dump.files import read_documents

__all__ = ["Document", "DocumentReader", "read_documents"]
