import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.queue.ExcerptAppender;
import net.openhft.chronicle.queue.ExcerptTailer;
import net.openhft.chronicle.queue.impl.single.InternalAppender;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;

/**
 * One-way delays of the replication in Rate: from just before the append at the source until the
 * append at the sink has returned. Three processes; the first 8 bytes of an excerpt are its time.
 * The writer polls the clock and yields between two, the source yields while nothing comes, the
 * sink blocks in its read.
 * <pre>
 * write DIR SIZE COUNT GAP_US    appends, with pauses
 * source DIR PORT COUNT          says "ready" once it is connected
 * sink DIR PORT COUNT            says percentiles of the second half
 * </pre>
 */
public final class Delay {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        if (args[0].equals("write"))
            write(args[1], Integer.parseInt(args[2]), count, Integer.parseInt(args[4]));
        else if (args[0].equals("source"))
            source(args[1], Integer.parseInt(args[2]), count);
        else
            sink(args[1], Integer.parseInt(args[2]), count);
    }

    private static void write(String directory, int size, int count, int gapMicros) {
        Bytes<?> excerpt = Bytes.allocateElasticDirect(size);
        byte[] payload = new byte[size];
        try (SingleChronicleQueue queue = Queues.open(directory);
             ExcerptAppender appender = queue.createAppender()) {
            for (int i = 0; i < count; i++) {
                long due = System.nanoTime() + gapMicros * 1000L;
                while (System.nanoTime() < due)
                    Thread.yield();
                excerpt.clear();
                excerpt.write(payload);
                excerpt.writeLong(0, System.nanoTime());
                appender.writeBytes(excerpt);
            }
        }
    }

    private static void source(String directory, int port, int count) throws Exception {
        ByteBuffer out = ByteBuffer.allocateDirect(Queues.BUFFER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        Bytes<ByteBuffer> excerpt = Bytes.elasticByteBuffer(1 << 16);
        try (SingleChronicleQueue queue = Queues.open(directory);
             ExcerptTailer tailer = queue.createTailer();
             SocketChannel channel = Queues.connect(port)) {
            System.out.println("ready");
            for (int i = 0; i < count; ) {
                excerpt.clear();
                if (!tailer.readBytes(excerpt)) {
                    Thread.yield();
                    continue;
                }
                int length = (int) excerpt.readRemaining();
                ByteBuffer payload = excerpt.underlyingObject();
                payload.position(0).limit(length);
                out.clear();
                out.putLong(tailer.lastReadIndex()).putInt(length).put(payload).flip();
                while (out.hasRemaining())
                    channel.write(out);
                i++;
            }
            channel.shutdownOutput();
            channel.read(ByteBuffer.allocate(1));
        }
    }

    private static void sink(String directory, int port, int count) throws Exception {
        ByteBuffer in = ByteBuffer.allocateDirect(Queues.BUFFER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        Bytes<?> excerpt = Bytes.allocateElasticDirect(1 << 16);
        long[] delays = new long[count];
        int taken = 0;
        try (SingleChronicleQueue queue = Queues.open(directory);
             ExcerptAppender appender = queue.createAppender();
             SocketChannel channel = Queues.accept(port)) {
            InternalAppender exact = (InternalAppender) appender;
            while (taken < count && channel.read(in) >= 0) {
                in.flip();
                while (in.remaining() >= Queues.HEAD_BYTES) {
                    int length = in.getInt(in.position() + Long.BYTES);
                    if (in.remaining() < Queues.HEAD_BYTES + length)
                        break;
                    long index = in.getLong();
                    in.getInt();
                    long stamp = in.getLong(in.position());
                    ByteBuffer payload = in.duplicate();
                    payload.limit(in.position() + length);
                    excerpt.clear();
                    excerpt.writeSome(payload);
                    exact.writeBytes(index, excerpt);
                    delays[taken++] = System.nanoTime() - stamp;
                    in.position(in.position() + length);
                }
                in.compact();
            }
        }
        long[] kept = Arrays.copyOfRange(delays, taken / 2, taken);
        Arrays.sort(kept);
        System.out.printf("p50_us %.2f p90_us %.2f p99_us %.2f%n",
                kept[kept.length / 2] / 1e3, kept[kept.length * 9 / 10] / 1e3, kept[kept.length * 99 / 100] / 1e3);
        Queues.remove(new File(directory));
    }
}
