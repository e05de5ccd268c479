package cqrepl.fix;

import net.openhft.chronicle.bytes.Bytes;
import org.quickfixj.CharsetSupport;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import quickfix.MessageStore;

import java.io.Closeable;
import java.io.IOException;
import java.util.Arrays;
import java.util.Collection;
import java.util.Date;

/**
 * Numbers and messages of one session, in a queue that cqrepl replicates.
 *
 * There are two sequences. An item of NAME.out is a message that goes out, and says that the next number is one above
 * its own; an item of NAME.in says the same of what comes in. A reset is one record of NAME.out, and what is in
 * NAME.in of an earlier generation counts no more. What goes out is waited for. What came in is not: a session that
 * has lost the end of it asks for those messages again.
 */
public final class CqMessageStore implements MessageStore, Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(CqMessageStore.class);

    private final CqLog log;
    private final CqStorage out, in;
    private final long timeoutNanos;
    private final Runnable onClose;
    private int sender, target;

    CqMessageStore(CqLog log, CqStorage out, CqStorage in, long timeoutMs, Runnable onClose) throws IOException {
        this.log = log;
        this.out = out;
        this.in = in;
        this.timeoutNanos = timeoutMs * 1_000_000;
        this.onClose = onClose;
        for (CqStorage each : Arrays.asList(out, in)) {
            if (each.damage != null)
                throw new IllegalStateException(log.path + ": " + each.damage);
            if (!each.isThere)
                log.create(each);
        }
        if (out.gen == 0)
            await(log.reset(out)); // its time is that of the session
        sender = out.number + 1;
        target = in.outGen == (int) out.gen ? in.number + 1 : 1;
    }

    @Override
    public synchronized boolean set(int number, String message) throws IOException {
        long place = append(out, number, message.getBytes(CharsetSupport.getCharsetInstance()));
        if (number != sender)
            place = append(out, sender - 1, null); // the next number is what it was
        await(place);
        return true;
    }

    @Override
    public synchronized void get(int first, int last, Collection<String> to) throws IOException {
        int end = last == 0 ? out.limit() : Math.min(last, out.limit());
        for (int number = Math.max(first, 0); number <= end; number++)
            if (out.place(number) != 0) {
                CqRecord found = log.record(out.place(number));
                if (found == null || found.id != out.id)
                    throw new IOException("expected message " + number + " of " + out.name + ", got none");
                byte[] item = found.item.toByteArray();
                to.add(new String(item, out.prefix, item.length - out.prefix, CharsetSupport.getCharsetInstance()));
            }
    }

    @Override
    public synchronized void setNextSenderMsgSeqNum(int next) throws IOException {
        if (out.number + 1 != next) // else the message has said so
            await(append(out, next - 1, null));
        sender = next;
    }

    @Override
    public synchronized void setNextTargetMsgSeqNum(int next) throws IOException {
        append(in, next - 1, null);
        target = next;
    }

    @Override
    public synchronized void reset() throws IOException {
        await(log.reset(out));
        sender = target = 1;
        log.reset(in);
    }

    public synchronized void incrNextSenderMsgSeqNum() throws IOException { setNextSenderMsgSeqNum(sender + 1); }

    public synchronized void incrNextTargetMsgSeqNum() throws IOException { setNextTargetMsgSeqNum(target + 1); }

    public synchronized int getNextSenderMsgSeqNum() { return sender; }

    public synchronized int getNextTargetMsgSeqNum() { return target; }

    public synchronized Date getCreationTime() { return new Date(out.at); }

    public void refresh() { } // the numbers are those of the log: no other process writes it while this host leads

    public void close() { onClose.run(); }

    private long append(CqStorage storage, int number, byte[] message) throws IOException {
        Bytes<?> item = storage.item(number, (int) out.gen, message);
        return log.append(storage, item);
    }

    private void await(long place) throws IOException {
        if (timeoutNanos > 0 && !log.isSafe(place, out, timeoutNanos))
            LOG.warn("storage {}, item {}: no backup has said that it has it within {} ms", out.name, out.next - 1,
                    timeoutNanos / 1_000_000);
    }
}
