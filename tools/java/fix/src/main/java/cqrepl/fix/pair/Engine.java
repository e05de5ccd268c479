package cqrepl.fix.pair;

import cqrepl.fix.CqMessageStoreFactory;
import quickfix.*;
import quickfix.field.BeginSeqNo;
import quickfix.field.EndSeqNo;
import quickfix.field.Headline;
import quickfix.fix44.News;
import quickfix.fix44.ResendRequest;

import java.io.ByteArrayInputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;

/**
 * One end of a pair of FIX engines, for tests and the demonstration.
 *
 *     Engine acceptor DIRECTORY PORT SESSIONS RATE TIMEOUT_MS LABEL
 *     Engine initiator PORT,PORT,... SESSIONS RATE LABEL
 *
 * Session i is Ai at the acceptor and Bi at the initiator. Each end sends RATE messages a second on each session that
 * is logged on, with "LABEL:i:nth" as headline. The acceptor keeps its sessions in the queue, the initiator in memory,
 * and asks for the last messages once more whenever it has logged on. Lines on standard output:
 *
 *     KEPT i NUMBER MESSAGE   the store has returned from set: a backup has it, unless the log has a warning
 *     IN i MESSAGE            has come in, whatever becomes of it
 *     ON i SENDER TARGET      logged on, with the next numbers
 *     ENDED WHY               another host leads; the engine ends at once, with exit code 3
 */
public final class Engine extends ApplicationAdapter {
    private static final int ASKED = 5; // messages that the initiator wants once more
    private final boolean isAcceptor;
    private final double rate;
    private final String label;
    private final Map<SessionID, Thread> senders = new ConcurrentHashMap<>();

    private Engine(boolean isAcceptor, double rate, String label) {
        this.isAcceptor = isAcceptor;
        this.rate = rate;
        this.label = label;
    }

    public static void main(String[] args) throws Exception {
        boolean isAcceptor = args[0].equals("acceptor");
        int at = isAcceptor ? 3 : 2;
        Engine engine = new Engine(isAcceptor, Double.parseDouble(args[at + 1]), args[args.length - 1]);
        StringBuilder text = new StringBuilder("[DEFAULT]\nBeginString=FIX.4.4\nNonStopSession=Y\nHeartBtInt=5\nUseDataDictionary=N\n"
                + "ReconnectInterval=1\nCheckLatency=N\nLogonTimeout=5\nSocketReuseAddress=Y\n");
        if (isAcceptor)
            text.append("ConnectionType=acceptor\nSocketAcceptAddress=127.0.0.1\nSocketAcceptPort=").append(args[2])
                    .append("\nCqDirectory=").append(args[1]).append("\nCqReplicationTimeoutMs=").append(args[at + 2]).append('\n');
        else {
            text.append("ConnectionType=initiator\n");
            String[] ports = args[1].split(",");
            for (int i = 0; i < ports.length; i++) {
                String nth = i == 0 ? "" : "" + i;
                text.append("SocketConnectHost").append(nth).append("=127.0.0.1\nSocketConnectPort").append(nth).append('=').append(ports[i]).append('\n');
            }
        }
        for (int i = 1; i <= Integer.parseInt(args[at]); i++)
            text.append("[SESSION]\nSenderCompID=").append(isAcceptor ? "A" : "B").append(i).append("\nTargetCompID=")
                    .append(isAcceptor ? "B" : "A").append(i).append('\n');
        SessionSettings settings = new SessionSettings(new ByteArrayInputStream(text.toString().getBytes()));
        MessageStoreFactory stores = isAcceptor ? new CqMessageStoreFactory(settings, error -> {
            say("ENDED " + error.getMessage());
            Runtime.getRuntime().halt(3);
        }) : new MemoryStoreFactory();
        MessageStoreFactory noted = session -> noted(session, stores.create(session));
        LogFactory logs = Engine::log;
        Connector connector = isAcceptor ? new SocketAcceptor(engine, noted, settings, logs, new DefaultMessageFactory())
                : new SocketInitiator(engine, noted, settings, logs, new DefaultMessageFactory());
        connector.start();
        if (isAcceptor)
            Thread.currentThread().join(); // until it is ended
        while (System.in.read() >= 0) { }  // until its input ends
        connector.stop(true);
    }

    private static String nth(SessionID session) {
        return session.getSenderCompID().substring(1);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** The store, of which each message is said that it has kept. */
    private static MessageStore noted(SessionID session, MessageStore store) {
        return (MessageStore) Proxy.newProxyInstance(Engine.class.getClassLoader(), new Class<?>[]{MessageStore.class, java.io.Closeable.class},
                (proxy, method, args) -> {
                    try {
                        if (method.getName().equals("close") && !(store instanceof java.io.Closeable))
                            return null;
                        Object result = method.invoke(store, args);
                        if (method.getName().equals("set"))
                            say("KEPT " + nth(session) + " " + args[0] + " " + shown(String.valueOf(args[1])));
                        return result;
                    } catch (InvocationTargetException e) {
                        throw e.getCause();
                    }
                });
    }

    private static String shown(String message) {
        return message.replace('\001', '|');
    }

    private static Log log(SessionID session) {
        return new Log() {
            public void clear() { }
            public void onIncoming(String message) { say("IN " + nth(session) + " " + shown(message)); }
            public void onOutgoing(String message) { }
            public void onEvent(String text) { System.err.println(session + ": " + text); }
            public void onErrorEvent(String text) { onEvent(text); }
        };
    }

    @Override
    public void onLogon(SessionID session) {
        Session here = Session.lookupSession(session);
        int target = here.getExpectedTargetNum();
        say("ON " + nth(session) + " " + here.getExpectedSenderNum() + " " + target);
        if (!isAcceptor && target > ASKED + 1)
            here.send(new ResendRequest(new BeginSeqNo(target - 1 - ASKED), new EndSeqNo(target - 2)));
        Thread sender = new Thread(() -> send(session), "sender " + nth(session));
        sender.setDaemon(true);
        if (senders.putIfAbsent(session, sender) == null)
            sender.start();
    }

    private void send(SessionID session) {
        long pause = (long) (1e9 / rate), next = System.nanoTime();
        for (long i = 1; ; ) {
            Session here = Session.lookupSession(session);
            if (here != null && here.isLoggedOn())
                here.send(new News(new Headline(label + ":" + nth(session) + ":" + i++)));
            else
                next = System.nanoTime();
            next += pause;
            LockSupport.parkNanos(next - System.nanoTime());
        }
    }
}
