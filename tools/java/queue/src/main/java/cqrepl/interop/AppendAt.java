package cqrepl.interop;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.InternalAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;

/**
 * AppendAt DIR ROLLCYCLE [--eofs]: reads lines "indexHex payloadHex" (payload may be missing: empty) and
 * appends each at exactly that index. One JSON line for each input line: status is "written", "present" (the queue
 * already is at or past that index: silently ignored by the appender) or "error". --eofs calls normaliseEOFs() last.
 */
final class AppendAt {
    private AppendAt() {
    }

    static int run(Context c) throws Exception {
        boolean eofs = c.flag("--eofs");
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), c.arg(1, "ROLLCYCLE")).build();
             ExcerptAppender app = q.createAppender()) {
            for (String line; (line = c.in.readLine()) != null; ) {
                line = line.trim();
                if (line.isEmpty())
                    continue;
                String[] p = line.split("\\s+");
                appendAt(c, app, Long.parseUnsignedLong(p[0], 16), Common.unhex(p.length > 1 ? p[1] : ""));
                c.out.flush();
            }
            if (eofs)
                app.normaliseEOFs();
        }
        return 0;
    }

    private static void appendAt(Context c, ExcerptAppender app, long index, byte[] b) {
        try {
            long before = lastOf(app);
            ((InternalAppender) app).writeBytes(index, Bytes.wrapForRead(b));
            long after = lastOf(app);
            c.out.line("index", Common.index(index),
                    "status", after == index && before != after ? "written" : "present");
        } catch (Exception | AssertionError e) {
            c.out.line("index", Common.index(index), "status", "error",
                    "error", e.getClass().getSimpleName(), "message", e.getMessage());
        }
    }

    private static long lastOf(ExcerptAppender app) {
        try {
            return app.lastIndexAppended();
        } catch (IllegalStateException none) {
            return Long.MIN_VALUE;
        }
    }
}
