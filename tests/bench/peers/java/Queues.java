import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import net.openhft.chronicle.queue.RollCycles;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueue;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;

/** What the programs here have in common: queues, connections on loopback, processor time. */
final class Queues {
    static final int BUFFER_BYTES = 1 << 18;
    static final int HEAD_BYTES = 12; // index, length

    private Queues() {
    }

    static SingleChronicleQueue open(String directory) {
        return SingleChronicleQueueBuilder.binary(directory).rollCycle(RollCycles.DEFAULT).build();
    }

    static void remove(File file) {
        File[] within = file.listFiles();
        if (within != null)
            for (File each : within)
                remove(each);
        file.delete();
    }

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    static SocketChannel connect(int port) throws IOException, InterruptedException {
        for (int tries = 0; ; tries++) {
            try {
                SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
                channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                return channel;
            } catch (ConnectException e) {
                if (tries > 400)
                    throw e;
                Thread.sleep(25);
            }
        }
    }

    static SocketChannel accept(int port) throws IOException {
        try (ServerSocketChannel server = ServerSocketChannel.open()) {
            return server.bind(new InetSocketAddress("127.0.0.1", port)).accept();
        }
    }
}
