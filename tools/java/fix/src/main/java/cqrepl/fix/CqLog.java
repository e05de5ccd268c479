package cqrepl.fix;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.core.io.SingleThreadedChecked;
import net.openhft.chronicle.core.values.LongValue;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;
import net.openhft.chronicle.queue.impl.single.WriteLock;
import net.openhft.chronicle.wire.DocumentContext;

import java.io.File;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/**
 * The queue of an engine, which the cqrepl of this machine leads and replicates.
 *
 * QuickFIX/J calls from several threads, so Chronicle's check for one thread is off and all that touches the queue
 * is synchronized here; waits are not. The append lock is free while the host leads. Once it is held, another host
 * leads: the queue is closed, so that the host can take off what no other host has, and stays closed.
 */
final class CqLog {
    private static final long SPIN_NANOS = 20_000, PARK_NANOS = 50_000, SLOW_NANOS = 100_000_000, OPEN_NANOS = 10_000_000_000L;

    final String path;
    int users; // stores; counted by the factory
    private final SingleChronicleQueue queue;
    private final ExcerptAppender appender;
    private final ExcerptTailer tailer;
    private final WriteLock appendLock;
    private final LongValue leadsUntil;
    private final Bytes<?> buffer = Bytes.allocateElasticOnHeap(1024);
    private final Consumer<SessionNotLeader> onNotLeader;
    private boolean isElected; // the host has said here that it leads by an election
    private String closed; // why

    CqLog(String path, Consumer<SessionNotLeader> onNotLeader) throws SessionNotLeader {
        if (!new File(path, "metadata.cq4t").exists())
            throw new IllegalArgumentException("expected a queue, which the host makes, in CqDirectory, got " + path);
        this.path = path;
        this.onNotLeader = onNotLeader;
        queue = SingleChronicleQueueBuilder.binary(path).build();
        appendLock = queue.appendLock();
        leadsUntil = queue.metaStore().acquireValueFor("cqrepl.leads", 0);
        for (long began = System.nanoTime(); appendLock.locked(); LockSupport.parkNanos(PARK_NANOS))
            if (System.nanoTime() - began > OPEN_NANOS)
                throw end("the append lock is held: another host leads");
        appender = queue.createAppender();
        tailer = queue.createTailer();
        ((SingleThreadedChecked) appender).singleThreadedCheckDisabled(true);
        ((SingleThreadedChecked) tailer).singleThreadedCheckDisabled(true);
    }

    /** Hands each record of these storages to them, from the first one in the log to the last. */
    synchronized void scan(Map<Long, CqStorage> storages) throws SessionNotLeader {
        refuseIfNotLeading();
        tailer.toStart();
        for (; ; )
            try (DocumentContext document = tailer.readingDocument()) {
                if (!document.isPresent())
                    return;
                CqRecord record = CqRecord.read(document.wire());
                if (storages.containsKey(record.id))
                    storages.get(record.id).apply(record, document.index());
            }
    }

    /** Creates a storage. */
    synchronized void create(CqStorage storage) throws SessionNotLeader {
        CqRecord.create(buffer.clear(), storage.name);
        append();
    }

    /** Appends an item to a storage; its index in the queue. */
    synchronized long append(CqStorage storage, Bytes<?> item) throws SessionNotLeader {
        CqRecord.write(buffer.clear(), CqRecord.APPEND, storage.id, storage.next, storage.gen, 0, item);
        long place = append();
        storage.append(item, place);
        return place;
    }

    /** Has all items of a storage go. */
    synchronized long reset(CqStorage storage) throws SessionNotLeader {
        long gen = storage.gen + 1, at = System.currentTimeMillis();
        CqRecord.write(buffer.clear(), CqRecord.RESET, storage.id, 1, gen, at, null);
        long place = append();
        storage.clear(gen, 1, at);
        return place;
    }

    private long append() throws SessionNotLeader {
        for (; ; ) {
            refuseIfNotLeading();
            try (DocumentContext document = appender.writingDocument()) {
                document.wire().bytes().write(buffer);
                break;
            } catch (RuntimeException e) { // unless it was refused by the lock, it is not known whether it has landed
                if (!String.valueOf(e.getMessage()).contains("lock is being held"))
                    throw end("an append has failed: " + e);
            }
        }
        return appender.lastIndexAppended();
    }

    /** The record at an index of the queue; null where there is none. */
    synchronized CqRecord record(long place) throws SessionNotLeader {
        refuseIfClosed();
        if (tailer.moveToIndex(place))
            try (DocumentContext document = tailer.readingDocument()) {
                if (document.isPresent())
                    return CqRecord.read(document.wire());
            }
        return null;
    }

    /**
     * Waits until the host calls an excerpt of a storage safe; false once the time is over. A host whose lease is over
     * then leads no longer by its own word: another one may have been elected that does not have the excerpt.
     */
    boolean isSafe(long place, CqStorage storage, long timeoutNanos) throws SessionNotLeader {
        long began = System.nanoTime(), waited = 0;
        for (; !reaches(place); waited = System.nanoTime() - began) {
            if (waited > timeoutNanos && isElected && !hasLease())
                throw end("the lease of the host is over");
            if (waited > timeoutNanos)
                return false;
            if (waited < SPIN_NANOS)
                Thread.onSpinWait();
            else
                LockSupport.parkNanos(PARK_NANOS);
        }
        refuseIfNotLeading(); // the mark of a host that follows is about excerpts of another host
        if (waited > SLOW_NANOS) { // the process may have been stopped, and the host have followed and led again
            CqRecord found = record(place);
            if (found == null || found.id != storage.id)
                throw end("what was written at " + Long.toHexString(place) + " is there no longer");
        }
        return true;
    }

    private synchronized boolean reaches(long place) throws SessionNotLeader {
        refuseIfClosed();
        return queue.lastAcknowledgedIndexReplicated() >= place;
    }

    /** A host that has its lease holds the lock for a moment only, to take back what another host has kept for it. */
    private synchronized void refuseIfNotLeading() throws SessionNotLeader {
        refuseIfClosed();
        for (; appendLock.locked(); LockSupport.parkNanos(PARK_NANOS))
            if (!hasLease())
                throw end("the append lock is held: another host leads");
        hasLease();
    }

    private synchronized boolean hasLease() throws SessionNotLeader {
        refuseIfClosed();
        long until = leadsUntil.getVolatileValue();
        isElected |= until != 0;
        return until - System.nanoTime() > 0;
    }

    synchronized boolean isClosed() { return closed != null; }

    private void refuseIfClosed() throws SessionNotLeader {
        if (closed != null)
            throw new SessionNotLeader(path + ": " + closed);
    }

    private SessionNotLeader end(String why) {
        close(why);
        SessionNotLeader error = new SessionNotLeader(path + ": " + why);
        onNotLeader.accept(error);
        return error;
    }

    synchronized void close(String why) {
        closed = closed == null ? why : closed;
        queue.close();
    }
}
