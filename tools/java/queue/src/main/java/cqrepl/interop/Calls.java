package cqrepl.interop;

import com.google.gson.JsonArray;
import net.openhft.chronicle.bytes.MethodReader;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.wire.SelfDescribingMarshallable;

import java.lang.reflect.Proxy;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZonedDateTime;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/**
 * Calls DIR: what a method reader calls for each excerpt: {"calls":[["method","Class: value",...],...]}, and what it
 * threw as "error". An excerpt that it skips has no calls.
 */
public final class Calls {
    private Calls() {
    }

    public enum Side {
        BUY, SELL
    }

    public static class Leg extends SelfDescribingMarshallable {
        public String sym;
        public int ratio;
    }

    public static class Signal extends SelfDescribingMarshallable {
        public String sym;
        public double px;
        public long qty;
    }

    public static class Order extends SelfDescribingMarshallable {
        public String sym;
        public double px;
        public long qty;
        public boolean live;
        public Side side;
        public BigDecimal exact;
        public BigInteger big;
        public LocalDate day;
        public UUID id;
        public Leg leg;
        public List<Leg> legs;
        public List<String> tags;
        public Map<String, Long> counts;
        public byte[] data;
    }

    /** What a method reader may call: each kind of argument, and none, one, two, three of them. */
    public interface Handler {
        void none();

        void aBoolean(boolean value);

        void aByte(byte value);

        void aShort(short value);

        void aChar(char value);

        void anInt(int value);

        void aLong(long value);

        void aFloat(float value);

        void aDouble(double value);

        void boxedLong(Long value);

        void boxedDouble(Double value);

        void boxedBoolean(Boolean value);

        void aString(String value);

        void text(CharSequence value);

        void bytes(byte[] value);

        void decimal(BigDecimal value);

        void big(BigInteger value);

        void uuid(UUID value);

        void date(LocalDate value);

        void time(LocalTime value);

        void dateTime(LocalDateTime value);

        void zoned(ZonedDateTime value);

        void side(Side value);

        void leg(Leg value);

        void order(Order value);

        void signal(Signal value);

        void list(List<String> value);

        void legs(List<Leg> value);

        void set(Set<String> value);

        void map(Map<String, Object> value);

        void object(Object value);

        void longs(long[] value);

        void doubles(double[] value);

        void two(String first, long second);

        void twoObjects(Leg first, Side second);

        void three(String first, double second, Leg third);
    }

    static int run(Context c) {
        try (SingleChronicleQueue q = c.builder(c.arg(0, "DIR"), null).build();
             ExcerptTailer t = q.createTailer()) {
            JsonArray[] calls = {null};
            Handler handler = (Handler) Proxy.newProxyInstance(Calls.class.getClassLoader(),
                    new Class<?>[]{Handler.class}, (proxy, method, args) -> {
                        if (method.getDeclaringClass() == Object.class)
                            return method.invoke(calls, args);
                        JsonArray call = new JsonArray();
                        call.add(method.getName());
                        for (Object arg : args == null ? new Object[0] : args)
                            call.add(shown(arg));
                        calls[0].add(call);
                        return null;
                    });
            MethodReader reader = t.methodReader(handler);
            long last = q.lastIndex();
            for (long index = q.firstIndex(); index <= last; index++) {
                if (!t.moveToIndex(index))
                    continue;
                calls[0] = new JsonArray();
                String error = null;
                try {
                    reader.readOne();
                } catch (RuntimeException | Error thrown) {
                    error = thrown.toString();
                }
                c.out.line("index", Common.index(index), "calls", calls[0], "error", error);
            }
        }
        return 0;
    }

    /** The class of an argument and what it says; null as it is. */
    private static String shown(Object value) {
        if (value == null)
            return "null";
        String name = value.getClass().getSimpleName();
        String said = value instanceof byte[] ? Base64.getEncoder().encodeToString((byte[]) value)
                : value instanceof long[] ? Arrays.toString((long[]) value)
                : value instanceof double[] ? Arrays.toString((double[]) value)
                : value instanceof Character ? Integer.toString((Character) value)
                : value.toString();
        return (value instanceof List ? "List" : value instanceof Map ? "Map" : value instanceof Set ? "Set" : name)
                + ": " + said;
    }
}
