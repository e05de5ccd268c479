import java.io.File;
import java.util.Arrays;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.wire.DocumentContext;

/**
 * Appending to and reading from a queue in one process: DIR SIZE COUNT PASSES.
 * Each pass has a new queue. Only the last one is said: by then everything is compiled.
 */
public final class Local {
    private static long bytesSeen;

    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        int size = Integer.parseInt(args[1]), count = Integer.parseInt(args[2]);
        String said = "";
        for (int pass = Integer.parseInt(args[3]); pass > 0; pass--) {
            Queues.remove(directory);
            try (SingleChronicleQueue queue = Queues.open(args[0])) {
                double append = append(queue, size, count);
                double copied = readCopied(queue, size, count);
                double viewed = readViewed(queue, count);
                said = String.format("append_ns %.2f copied_ns %.2f viewed_ns %.2f", append, copied, viewed);
            }
        }
        System.out.println(said);
        Queues.remove(directory);
    }

    private static double append(SingleChronicleQueue queue, int size, int count) {
        byte[] payload = new byte[size];
        Arrays.fill(payload, (byte) 'x');
        Bytes<?> bytes = Bytes.allocateElasticDirect(size);
        bytes.write(payload);
        try (ExcerptAppender appender = queue.createAppender()) {
            appender.writeBytes(bytes); // makes the file
            long began = System.nanoTime();
            for (int i = 1; i < count; i++)
                appender.writeBytes(bytes);
            return (System.nanoTime() - began) / (double) (count - 1);
        }
    }

    private static double readCopied(SingleChronicleQueue queue, int size, int count) {
        Bytes<?> bytes = Bytes.allocateElasticDirect(size);
        int found = 0;
        try (ExcerptTailer tailer = queue.createTailer()) {
            long began = System.nanoTime();
            while (tailer.readBytes(bytes)) {
                found++;
                bytes.clear();
            }
            return per(found, count, System.nanoTime() - began);
        }
    }

    private static double readViewed(SingleChronicleQueue queue, int count) {
        int found = 0;
        try (ExcerptTailer tailer = queue.createTailer()) {
            long began = System.nanoTime();
            while (true) {
                try (DocumentContext document = tailer.readingDocument()) {
                    if (!document.isPresent())
                        break;
                    bytesSeen += document.wire().bytes().readRemaining();
                    found++;
                }
            }
            return per(found, count, System.nanoTime() - began);
        }
    }

    private static double per(int found, int count, long nanos) {
        if (found != count)
            throw new IllegalStateException("expected " + count + " excerpts, found " + found);
        return nanos / (double) count;
    }
}
