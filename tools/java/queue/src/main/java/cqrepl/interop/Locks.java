package cqrepl.interop;

import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.TableStoreWriteLock;
import net.openhft.chronicle.threads.Pauser;
import net.openhft.chronicle.threads.TimingPauser;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * HoldLock DIR append|write and ReleaseLock DIR append|write: takes a lock of a queue and keeps it over calls.
 * Chronicle wants a lock released by the thread that took it, so each held lock has a thread of its own.
 */
final class Locks {
    private static final long DEFAULT_TIMEOUT_MS = 10_000;

    private final Map<String, Holder> held = new HashMap<>();

    int hold(Context c) throws Exception {
        String dir = c.arg(0, "DIR"), kind = kind(c);
        Holder holder = new Holder(c, dir, kind);
        synchronized (this) {
            if (held.containsKey(key(dir, kind)))
                throw new IllegalStateException("this process already holds the " + kind + " lock of " + dir);
            held.put(key(dir, kind), holder);
        }
        holder.setDaemon(true);
        holder.start();
        try {
            long value = await(holder.taken);
            c.out.line("held", kind, "value", value);
        } catch (Exception e) {
            synchronized (this) {
                held.remove(key(dir, kind));
            }
            throw e;
        }
        return 0;
    }

    int release(Context c) throws Exception {
        String dir = c.arg(0, "DIR"), kind = kind(c);
        Holder holder;
        synchronized (this) {
            holder = held.remove(key(dir, kind));
        }
        if (holder == null)
            throw new IllegalStateException("this process does not hold the " + kind + " lock of " + dir);
        holder.release.complete(null);
        await(holder.released);
        c.out.line("released", kind);
        return 0;
    }

    private static String kind(Context c) {
        String kind = c.arg(1, "append|write");
        if (!kind.equals("append") && !kind.equals("write"))
            throw new IllegalArgumentException("no such lock: " + kind);
        return kind;
    }

    private static String key(String dir, String kind) {
        return kind + " " + dir;
    }

    private static <T> T await(CompletableFuture<T> future) throws Exception {
        try {
            return future.get();
        } catch (ExecutionException e) {
            throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
        }
    }

    private static final class Holder extends Thread {
        final CompletableFuture<Long> taken = new CompletableFuture<>();
        final CompletableFuture<Void> release = new CompletableFuture<>();
        final CompletableFuture<Void> released = new CompletableFuture<>();
        private final Context context;
        private final String dir;
        private final String kind;

        Holder(Context context, String dir, String kind) {
            super("holds the " + kind + " lock");
            this.context = context;
            this.dir = dir;
            this.kind = kind;
        }

        @Override
        public void run() {
            try (SingleChronicleQueue q = context.builder(dir, null).build()) {
                TableStoreWriteLock lock = lockOf(q);
                lock.lock();
                taken.complete(lock.lockedBy());
                release.join();
                lock.unlock();
            } catch (Throwable t) {
                taken.completeExceptionally(t);
                released.completeExceptionally(t);
            }
            released.complete(null);
        }

        /** The queue does not give out its write lock: a second one on the same key of the table store. */
        private TableStoreWriteLock lockOf(SingleChronicleQueue q) {
            if (kind.equals("append"))
                return (TableStoreWriteLock) q.appendLock();
            String timeoutMs = context.prop("timeoutMs");
            return new TableStoreWriteLock(q.metaStore(), () -> (TimingPauser) Pauser.busy(),
                    (timeoutMs == null ? DEFAULT_TIMEOUT_MS : Long.parseLong(timeoutMs)) * 3 / 2);
        }
    }
}
