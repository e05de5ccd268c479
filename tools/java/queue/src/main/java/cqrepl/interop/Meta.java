package cqrepl.interop;

import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;

/** Meta DIR: every key of the table store with its 64-bit value, one JSON line each. Opening itself updates some of them. */
final class Meta {
    private Meta() {
    }

    static int run(Context c) {
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), null).build()) {
            q.metaStore().forEachKey(c.out, (out, key, value) -> {
                if (!"header".contentEquals(key))
                    out.line("key", key.toString(), "value", value.int64());
            });
        }
        return 0;
    }
}
