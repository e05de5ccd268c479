package cqrepl.interop;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.wire.DocumentContext;

import java.util.concurrent.locks.LockSupport;

/**
 * Append DIR ROLLCYCLE COUNT SIZE SEED [ratePerSec] [--log] [--doc]: SIZE is a number or "min-max".
 * --log prints a JSON line for each excerpt; --doc uses writingDocument() instead of writeBytes().
 * The last line names the longest that one append took: mostly a wait for the write lock.
 */
final class Append {
    private static final long CATCH_UP_NS = 20_000_000L;

    private Append() {
    }

    static int run(Context c) {
        boolean log = c.flag("--log"), doc = c.flag("--doc");
        long count = Long.parseLong(c.arg(2, "COUNT"));
        String size = c.arg(3, "SIZE");
        int dash = size.indexOf('-');
        int min = Integer.parseInt(dash < 0 ? size : size.substring(0, dash));
        int max = dash < 0 ? min : Integer.parseInt(size.substring(dash + 1));
        long seed = Long.parseLong(c.arg(4, "SEED"));
        double rate = Double.parseDouble(c.argOr(5, "0"));
        long first = -1, last = -1, longest = 0;
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), c.arg(1, "ROLLCYCLE")).build();
             ExcerptAppender app = q.createAppender()) {
            long start = System.nanoTime();
            for (long i = 0; i < count; i++) {
                if (rate > 0)
                    start += waitUntil(start + (long) (i * 1e9 / rate));
                byte[] b = Common.payload(seed, i, min + (int) (i % (max - min + 1)));
                long before = System.nanoTime();
                if (doc) {
                    try (DocumentContext dc = app.writingDocument()) {
                        dc.wire().bytes().write(b);
                    }
                } else {
                    app.writeBytes(Bytes.wrapForRead(b));
                }
                longest = Math.max(longest, System.nanoTime() - before);
                last = app.lastIndexAppended();
                if (i == 0)
                    first = last;
                if (log) {
                    c.out.line("i", i, "index", Common.index(last), "length", b.length);
                    if (rate > 0)
                        c.out.flush();
                }
            }
        }
        c.out.line("count", count, "firstIndex", Common.index(first), "lastIndex", Common.index(last),
                "longestNs", longest);
        return 0;
    }

    /**
     * Tells how much of the delay is not made up for: a process that did not run for a while must
     * not append more in one second than a cycle of a second may hold.
     */
    private static long waitUntil(long due) {
        for (long left; (left = due - System.nanoTime()) > 0; )
            LockSupport.parkNanos(Math.min(1_000_000L, left));
        return Math.max(0, System.nanoTime() - due - CATCH_UP_NS);
    }
}
