package cqrepl.interop;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.wire.ValueOut;
import net.openhft.chronicle.wire.Wire;
import net.openhft.chronicle.wire.WireType;

import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;

/**
 * Partition N: reads lines "kind valueHex", in which the kind is text (the value is UTF-8), number (its decimal
 * digits) or bytes, and prints for each the key as binary wire and its partition of N.
 */
final class Partition {
    private Partition() {
    }

    static int run(Context c) throws Exception {
        long partitions = Long.parseLong(c.arg(0, "N"));
        for (String line; (line = c.in.readLine()) != null; ) {
            String[] p = line.trim().split(" ", 2);
            byte[] data = wire(p[0], Common.unhex(p.length > 1 ? p[1] : ""));
            CRC32 crc = new CRC32();
            crc.update(data);
            c.out.line("wire", Common.hex(data), "partition", crc.getValue() % partitions);
        }
        return 0;
    }

    private static byte[] wire(String kind, byte[] value) {
        Bytes<byte[]> bytes = Bytes.allocateElasticOnHeap();
        Wire wire = WireType.BINARY_LIGHT.apply(bytes);
        ValueOut out = wire.getValueOut();
        String text = new String(value, StandardCharsets.UTF_8);
        if (kind.equals("text"))
            out.text(text);
        else if (kind.equals("number"))
            number(out, Long.parseLong(text));
        else if (kind.equals("bytes"))
            out.bytes(value);
        else
            throw new IllegalArgumentException("text, number or bytes expected, " + kind + " came");
        return bytes.toByteArray();
    }

    /** int64 takes a float for a number beyond 32 bits that is one: a partition is of the number. */
    private static void number(ValueOut out, long value) {
        if (value >= Integer.MIN_VALUE && value <= 0xFFFF_FFFFL)
            out.int64(value);
        else
            out.fixedInt64(value);
    }
}
