import io.aeron.ExclusivePublication;
import io.aeron.archive.Archive;
import io.aeron.archive.ArchiveThreadingMode;
import io.aeron.archive.ArchivingMediaDriver;
import io.aeron.archive.client.AeronArchive;
import io.aeron.archive.client.ReplicationParams;
import io.aeron.archive.codecs.RecordingSignal;
import io.aeron.archive.codecs.SourceLocation;
import io.aeron.archive.status.RecordingPos;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.io.File;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.SleepingMillisIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.YieldingIdleStrategy;
import org.agrona.concurrent.status.CountersReader;

/**
 * Two archives, of which one replicates what the other has recorded.
 * <pre>
 * serve DIR DRIVER PORT SIZE COUNT             records, says "id N stop N", serves until its input ends
 * copy DIR DRIVER PORT FROM ID STOP COUNT WARM replicates WARM + 1 times; says the rate of the last one
 * </pre>
 * DRIVER is the directory of the media driver, in shared memory. A rate counts from the last look
 * that has found nothing of the copy to the one that has found all of it.
 */
public final class Archives {
    private static final int STREAM = 1001;
    private static final String IPC = "aeron:ipc?term-length=64k";
    private static final String ANY_PORT = "aeron:udp?endpoint=127.0.0.1:0";
    private static final int MTU = 65504; // the longest, on loopback
    private static final long LOOK_NS = 50_000;
    private static final long LATE_NS = TimeUnit.SECONDS.toNanos(120);

    public static void main(String[] args) throws Exception {
        String directory = args[1], driver = args[2];
        try (ArchivingMediaDriver node = launched(directory, driver, control(args[3]));
             AeronArchive archive = connected(driver)) {
            if (args[0].equals("serve"))
                serve(archive, Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            else
                copy(archive, control(args[4]), Long.parseLong(args[5]), Long.parseLong(args[6]),
                    Integer.parseInt(args[7]), Integer.parseInt(args[8]));
        }
    }

    private static String control(String port) {
        return "aeron:udp?endpoint=127.0.0.1:" + port;
    }

    /** One thread does all: with two cores that was the fastest. */
    private static ArchivingMediaDriver launched(String directory, String driver, String control) {
        MediaDriver.Context media = new MediaDriver.Context()
            .aeronDirectoryName(driver).dirDeleteOnStart(true).dirDeleteOnShutdown(true)
            .threadingMode(ThreadingMode.INVOKER)
            .socketRcvbufLength(4 << 20).socketSndbufLength(4 << 20)
            .initialWindowLength(512 << 10)
            .ipcTermBufferLength(64 << 20).publicationTermBufferLength(64 << 20)
            .mtuLength(MTU).ipcMtuLength(MTU)
            .termBufferSparseFile(false).spiesSimulateConnection(true)
            .conductorIdleStrategy(YieldingIdleStrategy.INSTANCE)
            .sharedIdleStrategy(YieldingIdleStrategy.INSTANCE);
        Archive.Context archive = new Archive.Context()
            .aeronDirectoryName(driver).archiveDir(new File(directory)).deleteArchiveOnStart(true)
            .controlChannel(control).localControlChannel(IPC).replicationChannel(ANY_PORT)
            .archiveClientContext(new AeronArchive.Context().controlResponseChannel(ANY_PORT))
            .recordingEventsEnabled(false)
            .threadingMode(ArchiveThreadingMode.SHARED)
            .segmentFileLength(128 << 20).fileIoMaxLength(256 << 10)
            .fileSyncLevel(0).catalogFileSyncLevel(0)
            .idleStrategySupplier(() -> YieldingIdleStrategy.INSTANCE);
        return ArchivingMediaDriver.launch(media, archive);
    }

    private static AeronArchive connected(String driver) {
        return AeronArchive.connect(new AeronArchive.Context()
            .aeronDirectoryName(driver).controlRequestChannel(IPC).controlResponseChannel(IPC)
            .idleStrategy(new SleepingMillisIdleStrategy(1)));
    }

    private static void serve(AeronArchive archive, int size, int count) throws Exception {
        String channel = "aeron:ipc?term-length=4m|mtu=" + MTU;
        long subscription = archive.startRecording(channel, STREAM, SourceLocation.LOCAL);
        CountersReader counters = archive.context().aeron().countersReader();
        try (ExclusivePublication out =
                 archive.context().aeron().addExclusivePublication(channel, STREAM)) {
            int counter;
            while ((counter = RecordingPos.findCounterIdBySession(counters, out.sessionId())) < 0)
                Thread.yield();
            long id = RecordingPos.getRecordingId(counters, counter);
            UnsafeBuffer message = new UnsafeBuffer(new byte[size]);
            for (int i = 0; i < count; i++)
                while (out.offer(message, 0, size) < 0)
                    Thread.yield();
            while (counters.getCounterValue(counter) < out.position())
                Thread.yield();
            archive.stopRecording(subscription);
            while (archive.getStopPosition(id) != out.position())
                LockSupport.parkNanos(LOOK_NS);
            System.out.println("id " + id + " stop " + out.position());
        }
        while (System.in.read() >= 0) { }
    }

    private static void copy(AeronArchive archive, String from, long id, long stop, int count,
                             int warm) throws Exception {
        double seconds = 0;
        for (int i = 0; i <= warm; i++) {
            new ProcessBuilder("sync").start().waitFor(); // what is measured is not what the last one left
            seconds = replicated(archive, from, id, stop);
        }
        System.out.println("excerpts_per_s " + (long) (count / seconds));
    }

    private static double replicated(AeronArchive archive, String from, long id, long stop)
        throws Exception {
        CountersReader counters = archive.context().aeron().countersReader();
        boolean[] ended = {false};
        long[] copy = {-1};
        int[] counter = {-1};
        archive.context().recordingSignalConsumer((session, correlation, recording, subscription,
                                                   position, signal) ->
            ended[0] |= signal == RecordingSignal.REPLICATE_END);
        long began = System.nanoTime(), before = began, first = 0, last = 0;
        archive.replicate(id, AeronArchive.Configuration.controlStreamId(), from,
            new ReplicationParams().replicationChannel(ANY_PORT));
        while (last == 0) {
            long now = System.nanoTime();
            if (counter[0] < 0)
                counters.forEach((each, type, key, label) -> {
                    if (type == RecordingPos.RECORDING_POSITION_TYPE_ID) {
                        counter[0] = each;
                        copy[0] = key.getLong(0);
                    }
                });
            long position = counter[0] < 0 ? 0 : counters.getCounterValue(counter[0]);
            if (position > 0 && first == 0)
                first = before;
            boolean isOver = counter[0] >= 0
                && counters.getCounterState(counter[0]) != CountersReader.RECORD_ALLOCATED;
            if (position >= stop || (isOver && archive.getStopPosition(copy[0]) == stop))
                last = now;
            else if (isOver || now - began > LATE_NS)
                throw new IllegalStateException("expected " + stop + ", the copy is at " + position);
            before = now;
            LockSupport.parkNanos(LOOK_NS);
        }
        while (!ended[0]) {
            archive.pollForRecordingSignals();
            LockSupport.parkNanos(LOOK_NS);
        }
        if (archive.getStopPosition(copy[0]) != stop)
            throw new IllegalStateException("the copy ended before " + stop);
        archive.purgeRecording(copy[0]);
        return (last - first) / 1e9;
    }
}
