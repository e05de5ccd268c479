package cqrepl.interop;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;

/**
 * TryAppend DIR PAYLOADHEX: one plain append to an existing queue; prints whether it was "written" or "refused".
 * TryAppend waits 1.5 x interop.timeoutMs for a write lock that another process holds.
 */
final class TryAppend {
    private TryAppend() {
    }

    static int run(Context c) {
        byte[] b = Common.unhex(c.arg(1, "PAYLOADHEX"));
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), null).build();
             ExcerptAppender app = q.createAppender()) {
            app.writeBytes(Bytes.wrapForRead(b));
            c.out.line("status", "written", "index", Common.index(app.lastIndexAppended()));
        } catch (IllegalStateException refused) {
            c.out.line("status", "refused", "error", Common.describe(refused));
        }
        return 0;
    }
}
