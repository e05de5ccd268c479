package cqrepl.interop;

import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.wire.DocumentContext;

/** Dump DIR [--meta] [--sha] [--text]: one JSON line for each excerpt, then one summary line. */
final class Dump {
    private Dump() {
    }

    static int run(Context c) {
        boolean meta = c.flag("--meta"), sha = c.flag("--sha"), text = c.flag("--text");
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), null).build()) {
            if (text) {
                c.out.line("text", q.dump());
                return 0;
            }
            long n = 0, last = -1;
            try (ExcerptTailer t = q.createTailer()) {
                while (true) {
                    try (DocumentContext dc = t.readingDocument(meta)) {
                        if (!dc.isPresent())
                            break;
                        byte[] b = Common.body(dc);
                        if (dc.isMetaData()) {
                            metadata(c.out, b, sha);
                        } else {
                            last = dc.index();
                            n++;
                            Common.excerpt(c.out, last, b, sha);
                        }
                    }
                }
            }
            c.out.line("count", n,
                    "firstIndex", Common.index(q.firstIndex()), "lastIndex", Common.index(last),
                    "queueLastIndex", Common.index(q.lastIndex()),
                    "firstCycle", q.firstCycle(), "lastCycle", q.lastCycle(),
                    "rollCycle", q.rollCycle().toString(), "epoch", q.epoch(), "sourceId", q.sourceId());
        }
        return 0;
    }

    private static void metadata(Output out, byte[] b, boolean sha) {
        if (sha)
            out.line("meta", true, "length", b.length, "sha256", Common.sha256(b));
        else
            out.line("meta", true, "payload", Common.hex(b));
    }
}
