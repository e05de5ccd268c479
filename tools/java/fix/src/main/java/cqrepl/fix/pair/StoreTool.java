package cqrepl.fix.pair;

import cqrepl.fix.*;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.wire.BinaryWire;
import quickfix.*;

import java.io.*;
import java.util.*;

/** Answers one line for each line: records and one store, for tests that compare them with those of Python. */
public final class StoreTool {
    static byte[] unhex(String text) {
        byte[] out = new byte[text.length() / 2];
        for (int i = 0; i < out.length; i++)
            out[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        return out;
    }

    static String hex(byte[] data) {
        StringBuilder out = new StringBuilder(".");
        for (byte each : data) out.append(String.format("%02x", each));
        return out.toString();
    }

    static String record(String[] words) {
        if (words[0].equals("READ")) {
            CqRecord r = CqRecord.read(new BinaryWire(Bytes.wrapForRead(unhex(words[1]))));
            String item = r.item == null ? "-" : hex(r.item.toByteArray());
            return r.op + " " + r.id + " " + r.index + " " + r.gen + " " + r.at + " " + item;
        }
        Bytes<?> to = Bytes.allocateElasticOnHeap(64);
        if (words[0].equals("CREATE"))
            CqRecord.create(to, new String(unhex(words[1])));
        else
            CqRecord.write(to, words[0], Long.parseLong(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]),
                    Long.parseLong(words[4]), words[5].equals("-") ? null : Bytes.wrapForRead(unhex(words[5])));
        return hex(to.toByteArray());
    }

    static MessageStoreFactory factory;
    static MessageStore store;

    static SessionSettings settings(String path, String timeoutMs, String more) throws ConfigError {
        return new SessionSettings(new ByteArrayInputStream(("[DEFAULT]\nBeginString=FIX.4.4\nSenderCompID=A\n" + more
                + "CqReplicationTimeoutMs=" + timeoutMs + "\nCqDirectory=" + path
                + "\n[SESSION]\nTargetCompID=B\n[SESSION]\nTargetCompID=C\n").getBytes()));
    }

    static String call(String[] words) throws Exception {
        if (Character.isUpperCase(words[0].charAt(0)))
            return record(words);
        int n = words.length > 1 && !words[1].startsWith("/") ? Integer.parseInt(words[1]) : 0;
        switch (words[0]) {
            case "open":
                factory = new CqMessageStoreFactory(settings(words[1], words[2], ""));
                store = factory.create(new SessionID("FIX.4.4", "A", "B"));
                break;
            case "time": // of so many messages, each with its wait: p50 and p99 in microseconds
                long[] took = new long[n];
                for (int i = 0, number = store.getNextSenderMsgSeqNum(); i < n; i++) {
                    long began = System.nanoTime();
                    store.set(number + i, "8=FIX.4.4|35=B|148=" + i);
                    store.incrNextSenderMsgSeqNum();
                    took[i] = System.nanoTime() - began;
                }
                Arrays.sort(took);
                return took[n / 2] / 1000 + " " + took[n * 99 / 100] / 1000;
            case "again": // by the same factory
                store = factory.create(new SessionID("FIX.4.4", "A", "B"));
                break;
            case "two": // sessions with the same storages
                MessageStoreFactory both = new CqMessageStoreFactory(settings(words[1], words[2], "CqStorageName=s\n"));
                store = both.create(new SessionID("FIX.4.4", "A", "B"));
                both.create(new SessionID("FIX.4.4", "A", "C"));
                break;
            case "set": store.set(n, words[2]); break;
            case "incrsender": store.incrNextSenderMsgSeqNum(); break;
            case "sender": store.setNextSenderMsgSeqNum(n); break;
            case "target": store.setNextTargetMsgSeqNum(n); break;
            case "reset": store.reset(); break;
            case "close": ((Closeable) store).close(); return "closed";
            case "get":
                List<String> found = new ArrayList<>();
                store.get(n, Integer.parseInt(words[2]), found);
                return String.join(",", found);
            default: throw new IllegalArgumentException(words[0]);
        }
        return store.getNextSenderMsgSeqNum() + " " + store.getNextTargetMsgSeqNum() + " " + store.getCreationTime().getTime();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String said;
            try {
                said = call(line.split(" ", -1));
            } catch (Exception e) {
                said = "error " + String.valueOf(e.getMessage()).replace('\n', ' ');
            }
            System.out.println(said);
            System.out.flush();
        }
    }
}
