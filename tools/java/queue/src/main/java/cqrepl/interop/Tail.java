package cqrepl.interop;

import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.wire.DocumentContext;

/**
 * Tail DIR COUNT [timeoutSec] [--name NAME] [--end] [--sha] [--acknowledged]: prints excerpts as they come until COUNT
 * were seen; with --acknowledged only those that some replica has acknowledged.
 * The first line, {"ready":true}, tells that the tailer is in place. Exit code 3 after timeoutSec (default 60).
 */
final class Tail {
    private Tail() {
    }

    static int run(Context c) throws InterruptedException {
        String name = c.option("--name");
        boolean end = c.flag("--end"), sha = c.flag("--sha"), acknowledged = c.flag("--acknowledged");
        long count = Long.parseLong(c.arg(1, "COUNT"));
        long timeoutMs = Long.parseLong(c.argOr(2, "60")) * 1000;
        long seen = 0;
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), null).build();
             ExcerptTailer t = q.createTailer(name)) {
            if (acknowledged) {
                t.readAfterReplicaAcknowledged(true);
                // the usual check of this release lets one index through only: the last one acknowledged
                t.acknowledgedIndexReplicatedCheck((index, last) -> index <= last);
            }
            if (end)
                t.toEnd();
            c.out.line("ready", true);
            c.out.flush();
            long stopAt = System.currentTimeMillis() + timeoutMs;
            while (seen < count) {
                if (next(c, t, sha)) {
                    seen++;
                    continue;
                }
                c.out.flush();
                if (System.currentTimeMillis() > stopAt)
                    break;
                Thread.sleep(1);
            }
        }
        c.out.line("seen", seen);
        return seen < count ? 3 : 0;
    }

    private static boolean next(Context c, ExcerptTailer t, boolean sha) {
        try (DocumentContext dc = t.readingDocument()) {
            if (!dc.isPresent())
                return false;
            Common.excerpt(c.out, dc.index(), Common.body(dc), sha);
            return true;
        }
    }
}
