import java.io.File;
import java.io.IOException;
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
 * Replication as one would tune it by hand: tailer, 256 KiB of direct buffer, socket, the same
 * buffer, append under the same index. Each excerpt travels behind its index and length.
 * <pre>
 * write DIR SIZE COUNT     makes a queue
 * source DIR PORT COUNT    sends it, and waits until the other side is done
 * sink DIR PORT COUNT      takes it; says its rates, and its processor time in the second half
 * </pre>
 */
public final class Rate {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        if (args[0].equals("write"))
            write(args[1], Integer.parseInt(args[2]), count);
        else if (args[0].equals("source"))
            source(args[1], Integer.parseInt(args[2]), count);
        else
            sink(args[1], Integer.parseInt(args[2]), count);
    }

    private static void write(String directory, int size, int count) {
        byte[] payload = new byte[size];
        Arrays.fill(payload, (byte) 'x');
        Bytes<?> bytes = Bytes.allocateElasticDirect(size);
        bytes.write(payload);
        try (SingleChronicleQueue queue = Queues.open(directory);
             ExcerptAppender appender = queue.createAppender()) {
            for (int i = 0; i < count; i++)
                appender.writeBytes(bytes);
        }
    }

    private static void source(String directory, int port, int count) throws Exception {
        ByteBuffer out = ByteBuffer.allocateDirect(Queues.BUFFER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        Bytes<ByteBuffer> excerpt = Bytes.elasticByteBuffer(1 << 16);
        try (SingleChronicleQueue queue = Queues.open(directory);
             ExcerptTailer tailer = queue.createTailer();
             SocketChannel channel = Queues.connect(port)) {
            for (int i = 0; i < count; ) {
                excerpt.clear();
                boolean isThere = tailer.readBytes(excerpt);
                int length = isThere ? (int) excerpt.readRemaining() : 0;
                if (!isThere || out.remaining() < length + Queues.HEAD_BYTES)
                    send(channel, out);
                if (!isThere) {
                    Thread.onSpinWait();
                    continue;
                }
                ByteBuffer payload = excerpt.underlyingObject();
                payload.position(0).limit(length);
                out.putLong(tailer.lastReadIndex()).putInt(length).put(payload);
                i++;
            }
            send(channel, out);
            channel.shutdownOutput();
            channel.read(ByteBuffer.allocate(1));
        }
    }

    private static void send(SocketChannel channel, ByteBuffer out) throws IOException {
        out.flip();
        while (out.hasRemaining())
            channel.write(out);
        out.clear();
    }

    private static void sink(String directory, int port, int count) throws Exception {
        ByteBuffer in = ByteBuffer.allocateDirect(Queues.BUFFER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        Bytes<?> excerpt = Bytes.allocateElasticDirect(1 << 16);
        long began = 0, half = 0, cpu = 0;
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
                    if (taken == 0)
                        began = System.nanoTime();
                    if (taken == count / 2) {
                        half = System.nanoTime();
                        cpu = Queues.cpuNanos();
                    }
                    long index = in.getLong();
                    in.getInt();
                    ByteBuffer payload = in.duplicate();
                    payload.limit(in.position() + length);
                    excerpt.clear();
                    excerpt.writeSome(payload);
                    exact.writeBytes(index, excerpt);
                    in.position(in.position() + length);
                    taken++;
                }
                in.compact();
            }
            long ended = System.nanoTime();
            int rest = count - count / 2;
            System.out.printf("whole_per_s %.0f half_per_s %.0f sink_cpu_ns %.1f entries %d%n",
                    count * 1e9 / (ended - began), rest * 1e9 / (ended - half),
                    (Queues.cpuNanos() - cpu) / (double) rest, queue.entryCount());
        }
        Queues.remove(new File(directory));
    }
}
