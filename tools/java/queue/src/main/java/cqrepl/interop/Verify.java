package cqrepl.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.RollCycle;
import net.openhft.chronicle.queue.TailerDirection;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.wire.DocumentContext;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Verify DIR [maxMoves]: reads everything forwards, backwards, and by moveToIndex on a fresh position for each index
 * (at most maxMoves of them, spread evenly; default 20000); checks counts for each cycle, lastIndex, the index arrays
 * through sequence-by-cycle counts, that indexes are gap-free inside a cycle and that one past the end is not found.
 * Prints one JSON line; exit code 1 when anything is wrong.
 */
final class Verify {
    private static final int ERRORS_MAX = 20;

    private final SingleChronicleQueue q;
    private final RollCycle rollCycle;
    private final int maxMoves;
    private final List<String> errors = new ArrayList<>();
    private final List<Long> indexes = new ArrayList<>();
    private final List<String> digests = new ArrayList<>();
    private final Map<Integer, Long> perCycle = new TreeMap<>();

    private Verify(SingleChronicleQueue q, int maxMoves) {
        this.q = q;
        this.rollCycle = q.rollCycle();
        this.maxMoves = maxMoves;
    }

    static int run(Context c) {
        int maxMoves = Integer.parseInt(c.argOr(1, "20000"));
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), null).build()) {
            Verify v = new Verify(q, maxMoves);
            v.forwards();
            v.counts();
            v.backwards();
            v.moves();
            v.report(c.out);
            return v.errors.isEmpty() ? 0 : 1;
        }
    }

    private void error(String text) {
        if (errors.size() < ERRORS_MAX)
            errors.add(text);
    }

    private boolean full() {
        return errors.size() >= ERRORS_MAX;
    }

    private void forwards() {
        try (ExcerptTailer t = q.createTailer()) {
            while (true) {
                try (DocumentContext dc = t.readingDocument()) {
                    if (!dc.isPresent())
                        break;
                    indexes.add(dc.index());
                    digests.add(Common.sha256(Common.body(dc)));
                }
            }
        }
        long previous = -1;
        for (long i : indexes) {
            long want = perCycle.merge(rollCycle.toCycle(i), 1L, Long::sum) - 1;
            if (rollCycle.toSequenceNumber(i) != want)
                error("sequence " + Common.index(i) + " where " + want + " was expected");
            if (i <= previous)
                error("index not rising at " + Common.index(i));
            previous = i;
        }
    }

    private void counts() {
        try (ExcerptTailer t = q.createTailer()) {
            for (Map.Entry<Integer, Long> e : perCycle.entrySet()) {
                long counted = t.excerptsInCycle(e.getKey());
                if (counted != e.getValue())
                    error("cycle " + e.getKey() + ": excerptsInCycle " + counted + ", read " + e.getValue());
            }
        }
        int n = indexes.size();
        if (n > 0 && q.lastIndex() != indexes.get(n - 1))
            error("lastIndex " + Common.index(q.lastIndex()));
        if (n > 1 && indexes.get(0) == q.firstIndex()) {
            long counted = q.countExcerpts(indexes.get(0), indexes.get(n - 1));
            if (counted != n - 1)
                error("countExcerpts " + counted + ", wanted " + (n - 1));
        }
    }

    private void backwards() {
        try (ExcerptTailer t = q.createTailer()) {
            t.direction(TailerDirection.BACKWARD).toEnd();
            for (int i = indexes.size() - 1; i >= 0 && !full(); i--) {
                try (DocumentContext dc = t.readingDocument()) {
                    if (!dc.isPresent()) {
                        error("backwards: nothing at " + Common.index(indexes.get(i)));
                        break;
                    }
                    if (dc.index() != indexes.get(i))
                        error("backwards: " + Common.index(dc.index()) + " wanted " + Common.index(indexes.get(i)));
                    else if (!Common.sha256(Common.body(dc)).equals(digests.get(i)))
                        error("backwards: payload differs at " + Common.index(indexes.get(i)));
                }
            }
            try (DocumentContext dc = t.readingDocument()) {
                if (dc.isPresent())
                    error("backwards: something before the start " + Common.index(dc.index()));
            }
        }
    }

    /** From both ends in turn, so that each move is a real look-up. */
    private void moves() {
        int n = indexes.size();
        if (n == 0)
            return;
        int step = Math.max(1, n / maxMoves);
        try (ExcerptTailer t = q.createTailer()) {
            for (int k = 0; k < n && !full(); k += step) {
                int i = (k / step) % 2 == 0 ? k : n - 1 - k;
                if (!t.moveToIndex(indexes.get(i))) {
                    error("moveToIndex " + Common.index(indexes.get(i)));
                    continue;
                }
                try (DocumentContext dc = t.readingDocument()) {
                    if (!dc.isPresent() || dc.index() != indexes.get(i)
                            || !Common.sha256(Common.body(dc)).equals(digests.get(i)))
                        error("read after moveToIndex " + Common.index(indexes.get(i)));
                }
            }
            // a cycle filled to its last indexable excerpt wraps around in the look-up: not checked there
            long last = indexes.get(n - 1);
            if (rollCycle.toSequenceNumber(last) + 1 < rollCycle.maxMessagesPerCycle() && t.moveToIndex(last + 1))
                error("moveToIndex beyond the end worked");
        }
    }

    private void report(Output out) {
        JsonObject cycles = new JsonObject();
        perCycle.forEach((cycle, n) -> cycles.addProperty(Integer.toString(cycle), n));
        JsonArray texts = new JsonArray();
        errors.forEach(texts::add);
        out.line("ok", errors.isEmpty(), "count", indexes.size(), "cycles", cycles, "errors", texts);
    }
}
