package cqrepl.interop;

import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.util.List;

/** Orders DIR ROLLCYCLE COUNT: a service's method writer calls order(Order) COUNT times. */
final class Orders {
    private static final String[] SYMBOLS = {"EURUSD", "GBPUSD", "grün€"};

    private Orders() {
    }

    static int run(Context c) {
        int count = Integer.parseInt(c.arg(2, "COUNT"));
        long last;
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), c.arg(1, "ROLLCYCLE")).build();
             ExcerptAppender app = q.createAppender()) {
            Calls.Handler out = app.methodWriter(Calls.Handler.class);
            for (int i = 0; i < count; i++) {
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
