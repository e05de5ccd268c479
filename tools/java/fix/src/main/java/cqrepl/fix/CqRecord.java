package cqrepl.fix;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.bytes.BytesStore;
import net.openhft.chronicle.wire.BinaryWire;
import net.openhft.chronicle.wire.WireIn;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;

/** A record of a storage, as cqrepl/persist/storage/records.py has it: the same bytes. */
public final class CqRecord {
    public static final String CREATE = "CREATE", APPEND = "SEQUENCE_APPEND", RESET = "SEQUENCE_RESET", KEEP = "KEEP";

    public String op;
    public long id, index, gen, at;
    public BytesStore<?, ?> item;

    /** The number of the storage with this name: it is made of the name alone. */
    public static long idOf(String name) {
        try {
            byte[] sum = MessageDigest.getInstance("SHA-256").digest(name.getBytes(StandardCharsets.UTF_8));
            return java.nio.ByteBuffer.wrap(sum).getLong() & Long.MAX_VALUE;
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void create(Bytes<?> to, String name) {
        new BinaryWire(to).writeEventName(CREATE).marshallable(w -> w.write("id").int64(idOf(name))
                .write("kind").text("sequence").write("name").text(name).write("epoch").int64(0));
    }

    /** Writes a record; `item` is null for a reset, which has a time. The engine does not know the epoch. */
    public static void write(Bytes<?> to, String op, long id, long index, long gen, long at, Bytes<?> item) {
        new BinaryWire(to).writeEventName(op).marshallable(w -> {
            w.write("id").int64(id).write("index").int64(index).write("gen").int64(gen).write("epoch").int64(0);
            if (item == null)
                w.write("at").int64(at);
            else
                w.write("item").bytesLiteral(item);
        });
    }

    /** The next record of a wire; its item is a copy. */
    public static CqRecord read(WireIn wire) {
        CqRecord found = new CqRecord();
        StringBuilder name = new StringBuilder();
        wire.readEventName(name).marshallable(w -> {
            found.id = w.read("id").int64();
            found.index = w.read("index").int64();
            found.gen = w.read("gen").int64();
            found.at = w.read("at").int64();
            found.item = w.read("item").bytesLiteral();
        });
        found.op = name.toString();
        return found;
    }
}
