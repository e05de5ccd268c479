package cqrepl.interop;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.TableStoreWriteLock;
import net.openhft.chronicle.wire.DocumentContext;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * OpenAppender DIR, UseAppender DIR PAYLOADHEX, AwaitWriteLock DIR, BeginDocument DIR PAYLOADHEX, EndDocument DIR and
 * CloseAppender DIR: an appender that is kept over calls, so that a test can stop the process at a step of an append.
 * Chronicle wants one thread for an appender and its locks, so each has a thread of its own.
 */
final class Appenders {
    private static final long WAIT_MAX_NS = 60_000_000_000L;

    private final Map<String, Kept> kept = new HashMap<>();

    int open(Context c) throws Exception {
        String dir = c.arg(0, "DIR");
        Kept opened = new Kept(c, dir);
        synchronized (this) {
            if (kept.containsKey(dir))
                throw new IllegalStateException("this process already has an appender of " + dir);
            kept.put(dir, opened);
        }
        opened.setDaemon(true);
        opened.start();
        try {
            opened.call(() -> null);
        } catch (Exception e) {
            synchronized (this) {
                kept.remove(dir);
            }
            throw e;
        }
        return 0;
    }

    int use(Context c) throws Exception {
        byte[] b = Common.unhex(c.arg(1, "PAYLOADHEX"));
        return find(c).append(c, app -> app.writeBytes(Bytes.wrapForRead(b)));
    }

    int begin(Context c) throws Exception {
        byte[] b = Common.unhex(c.arg(1, "PAYLOADHEX"));
        Kept appender = find(c);
        appender.call(() -> {
            appender.document = appender.app.writingDocument();
            appender.document.wire().bytes().write(b);
            return null;
        });
        return 0;
    }

    int end(Context c) throws Exception {
        Kept appender = find(c);
        return appender.append(c, app -> appender.document.close());
    }

    /** Comes back once the appender's thread waits for the write lock: it has looked at the append lock then. */
    int awaitWriteLock(Context c) throws Exception {
        Kept appender = find(c);
        long end = System.nanoTime() + WAIT_MAX_NS;
        while (!appender.isLocking()) {
            if (System.nanoTime() > end)
                throw new IllegalStateException("the appender does not wait for the write lock");
            Thread.sleep(1);
        }
        return 0;
    }

    int close(Context c) throws Exception {
        Kept appender;
        synchronized (this) {
            appender = find(c);
            kept.remove(c.arg(0, "DIR"));
        }
        appender.call(() -> appender.isOver = true);
        appender.join();
        return 0;
    }

    private synchronized Kept find(Context c) {
        String dir = c.arg(0, "DIR");
        Kept found = kept.get(dir);
        if (found == null)
            throw new IllegalStateException("this process has no appender of " + dir);
        return found;
    }

    private interface Step {
        void work(ExcerptAppender app);
    }

    private static final class Kept extends Thread {
        final LinkedBlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
        private final CompletableFuture<Void> opened = new CompletableFuture<>();
        private final Context context;
        private final String dir;
        private boolean isOver;
        private ExcerptAppender app;
        private DocumentContext document;

        Kept(Context context, String dir) {
            super("appends to " + dir);
            this.context = context;
            this.dir = dir;
        }

        @Override
        public void run() {
            try (SingleChronicleQueue q = context.builder(dir, null).build();
                 ExcerptAppender appender = q.createAppender()) {
                app = appender;
                opened.complete(null);
                while (!isOver) {
                    Runnable next = work.poll(1, TimeUnit.SECONDS);
                    if (next != null)
                        next.run();
                }
            } catch (Throwable t) {
                opened.completeExceptionally(t);
            }
        }

        <T> T call(Callable<T> step) throws Exception {
            CompletableFuture<T> done = new CompletableFuture<>();
            work.add(() -> {
                try {
                    done.complete(step.call());
                } catch (Throwable t) {
                    done.completeExceptionally(t);
                }
            });
            try {
                opened.get();
                return done.get();
            } catch (ExecutionException e) {
                throw e.getCause() instanceof Exception ? (Exception) e.getCause() : e;
            }
        }

        int append(Context c, Step step) throws Exception {
            try {
                long index = call(() -> {
                    step.work(app);
                    return app.lastIndexAppended();
                });
                c.out.line("status", "written", "index", Common.index(index));
            } catch (IllegalStateException refused) {
                c.out.line("status", "refused", "error", Common.describe(refused));
            }
            return 0;
        }

        boolean isLocking() {
            for (StackTraceElement each : getStackTrace())
                if (each.getClassName().equals(TableStoreWriteLock.class.getName()) && each.getMethodName().equals("lock"))
                    return true;
            return false;
        }
    }
}
