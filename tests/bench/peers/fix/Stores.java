import quickfix.FileStoreFactory;
import quickfix.MessageStore;
import quickfix.MessageStoreFactory;
import quickfix.SessionID;
import quickfix.SessionSettings;
import cqrepl.fix.CqMessageStoreFactory;

import java.io.ByteArrayInputStream;
import java.util.Arrays;

/**
 * The time that a store of FIX sessions takes for a message and its number, the second half of so many: what came
 * before has Java compile.
 *
 * Stores file|queue DIRECTORY SIZE COUNT
 */
public final class Stores {
    public static void main(String[] args) throws Exception {
        int size = Integer.parseInt(args[2]), count = Integer.parseInt(args[3]);
        SessionSettings settings = new SessionSettings(new ByteArrayInputStream(("[DEFAULT]\nBeginString=FIX.4.4\n"
                + "SenderCompID=A\nFileStorePath=" + args[1] + "\nFileStoreSync=Y\nCqReplicationTimeoutMs=60000\n"
                + "CqDirectory=" + args[1] + "\n[SESSION]\nTargetCompID=B\n").getBytes()));
        MessageStoreFactory factory =
                args[0].equals("file") ? new FileStoreFactory(settings) : new CqMessageStoreFactory(settings);
        MessageStore store = factory.create(new SessionID("FIX.4.4", "A", "B"));
        char[] text = new char[size];
        Arrays.fill(text, 'x');
        String message = new String(text);
        long[] took = new long[count];
        for (int nth = -count, number = store.getNextSenderMsgSeqNum(); nth < count; nth++, number++) {
            long began = System.nanoTime();
            store.set(number, message);
            store.incrNextSenderMsgSeqNum();
            if (nth >= 0)
                took[nth] = System.nanoTime() - began;
        }
        Arrays.sort(took);
        System.out.printf("p50_us %.1f p99_us %.1f%n", took[count / 2] / 1e3, took[count * 99 / 100] / 1e3);
        System.exit(0);
    }
}
