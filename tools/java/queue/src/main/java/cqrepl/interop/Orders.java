package cqrepl.interop;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.wire.DocumentContext;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.util.List;

/**
 * Orders DIR ROLLCYCLE COUNT [--compressed]: a service's method writer calls order(Order) COUNT times;
 * or COUNT documents with a field "lzw" and one "gzip", of bytes that Java has compressed.
 */
final class Orders {
    private static final String[] SYMBOLS = {"EURUSD", "GBPUSD", "grün€"};

    private Orders() {
    }

    static int run(Context c) {
        int count = Integer.parseInt(c.arg(2, "COUNT"));
        boolean compressed = c.flag("--compressed");
        long last;
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), c.arg(1, "ROLLCYCLE")).build();
             ExcerptAppender app = q.createAppender()) {
            Calls.Handler out = app.methodWriter(Calls.Handler.class);
            for (int i = 0; compressed && i < count; i++) {
                Bytes<?> bytes = Bytes.from("x".repeat(200 + i));
                try (DocumentContext dc = app.writingDocument()) {
                    dc.wire().write("lzw").compress("lzw", bytes);
                    dc.wire().write("gzip").compress("gzip", bytes);
                }
            }
            for (int i = 0; !compressed && i < count; i++) {
                Calls.Order order = new Calls.Order();
                order.sym = SYMBOLS[i % SYMBOLS.length];
                order.px = 100 + i / 4.0;
                order.qty = i * 1_000_000L;
                order.live = i % 2 == 0;
                order.side = i % 3 == 0 ? Calls.Side.BUY : Calls.Side.SELL;
                order.exact = i % 5 == 0 ? null : new BigDecimal("1.10").add(BigDecimal.valueOf(i));
                order.day = LocalDate.of(2024, 3, 1).plusDays(i % 28);
                Calls.Leg leg = new Calls.Leg();
                leg.sym = "leg" + i;
                leg.ratio = i;
                order.legs = List.of(leg);
                order.tags = List.of("a", "b");
                out.order(order);
            }
            last = q.lastIndex();
        }
        c.out.line("count", count, "lastIndex", Common.index(last));
        return 0;
    }
}
