package cqrepl.fix;

import net.openhft.chronicle.bytes.Bytes;

import java.util.Arrays;

/**
 * One sequence of a session, as the log has it. Each item begins with a message's number and, of what came in, the
 * generation of what goes out; the message stands behind. An item without a message says the number alone.
 */
final class CqStorage {
    final String name;
    final long id;
    final int prefix; // bytes before the message
    boolean isThere;
    long gen, at, next = 1;
    int number, outGen; // of the last item
    String damage; // why it cannot be used; null: it can
    private long[] places = new long[64]; // index in the queue of each message, by its number; 0: none

    CqStorage(String name, int prefix) {
        this.name = name;
        this.id = CqRecord.idOf(name);
        this.prefix = prefix;
    }

    /** Takes a record of this storage in, in the order of the log. */
    void apply(CqRecord record, long place) {
        boolean isItem = record.op.equals(CqRecord.APPEND), isNext = record.gen == gen && record.index == next;
        isThere |= record.op.equals(CqRecord.CREATE);
        if (record.op.equals(CqRecord.RESET) && record.gen > gen)
            clear(record.gen, record.index, record.at);
        else if (isItem && isNext)
            append(Bytes.wrapForRead(record.item.toByteArray()), place);
        else if (isItem && (record.gen > gen || record.gen == gen && record.index > next))
            damage = "expected item " + next + " of generation " + gen + " of storage " + name + ", got " + record.index
                    + " of " + record.gen + " at " + Long.toHexString(place);
    }

    void clear(long gen, long next, long at) {
        this.gen = gen;
        this.next = next;
        this.at = at;
        number = 0;
        damage = null;
        Arrays.fill(places, 0);
    }

    /** The item of a number, and of a message if that is not null. */
    Bytes<?> item(int number, int outGen, byte[] message) {
        Bytes<?> item = Bytes.allocateElasticOnHeap(prefix + (message == null ? 0 : message.length));
        item.writeInt(number);
        if (prefix == 8)
            item.writeInt(outGen);
        if (message != null)
            item.write(message);
        return item;
    }

    void append(Bytes<?> item, long place) {
        boolean hasMessage = item.readRemaining() > prefix;
        number = item.readInt();
        outGen = prefix == 8 ? item.readInt() : 0;
        next++;
        if (prefix == 8 || !hasMessage || number < 0)
            return;
        if (number >= places.length)
            places = Arrays.copyOf(places, Math.max(number + 1, places.length * 2));
        places[number] = place;
    }

    long place(int number) { return number < places.length ? places[number] : 0; }

    int limit() { return places.length - 1; }
}
