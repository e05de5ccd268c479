package cqrepl.fix;

import quickfix.ConfigError;
import quickfix.FieldConvertError;
import quickfix.MessageStore;
import quickfix.MessageStoreFactory;
import quickfix.RuntimeError;
import quickfix.SessionID;
import quickfix.SessionSettings;

import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Makes the stores of the sessions of one engine. In the settings of a session or in [DEFAULT]: CqDirectory, the
 * directory of a queue that a host of this machine leads; CqReplicationTimeoutMs, how long a message is waited for
 * (10; 0: not at all); CqStorageName, the name of its storages (that of the session).
 */
public final class CqMessageStoreFactory implements MessageStoreFactory {
    public static final String DIRECTORY = "CqDirectory", TIMEOUT_MS = "CqReplicationTimeoutMs", NAME = "CqStorageName";
    private static final int NAME_MAX = 128;

    private final SessionSettings settings;
    private final Consumer<SessionNotLeader> onNotLeader;
    private final Map<String, CqLog> logs = new HashMap<>();
    private final Map<Long, CqStorage> storages = new HashMap<>(); // of sessions, as their log has been read
    private final Set<String> names = new HashSet<>(); // of sessions that have a store

    public CqMessageStoreFactory(SessionSettings settings) {
        this(settings, error -> { });
    }

    /** @param onNotLeader hears once of a queue that another host leads now: the engine is to end */
    public CqMessageStoreFactory(SessionSettings settings, Consumer<SessionNotLeader> onNotLeader) {
        this.settings = settings;
        this.onNotLeader = onNotLeader;
    }

    @Override
    public synchronized MessageStore create(SessionID session) {
        try {
            String name = name(session);
            long timeoutMs = settings.isSetting(session, TIMEOUT_MS) ? settings.getLong(session, TIMEOUT_MS) : 10;
            if (timeoutMs < 0)
                throw new ConfigError("expected " + TIMEOUT_MS + " from 0 on, got " + timeoutMs);
            CqLog log = log(settings.getString(session, DIRECTORY), name);
            CqStorage out = storages.remove(CqRecord.idOf(name + ".out")), in = storages.remove(CqRecord.idOf(name + ".in"));
            if (names.contains(log.path + name))
                throw new ConfigError("expected one session with the storages " + name + ", got two");
            MessageStore store = new CqMessageStore(log, out, in, timeoutMs, () -> release(log, name));
            names.add(log.path + name);
            log.users++;
            return store;
        } catch (IOException | ConfigError | FieldConvertError e) {
            throw new RuntimeError(e);
        }
    }

    /** The log, read for this session: the first time for all sessions of the settings at once. */
    private CqLog log(String path, String name) throws IOException, ConfigError {
        CqLog log = logs.get(path);
        if (log != null && log.isClosed())
            log = null;
        if (log != null && storages.containsKey(CqRecord.idOf(name + ".out")))
            return log;
        Map<Long, CqStorage> wanted = new HashMap<>();
        add(name, wanted);
        for (Iterator<SessionID> each = settings.sectionIterator(); log == null && each.hasNext(); ) {
            SessionID session = each.next();
            if (settings.isSetting(session, DIRECTORY) && path.equals(settings.getString(session, DIRECTORY)))
                add(name(session), wanted);
        }
        logs.put(path, log == null ? log = new CqLog(path, onNotLeader) : log);
        log.scan(wanted);
        storages.putAll(wanted);
        return log;
    }

    private static void add(String name, Map<Long, CqStorage> to) {
        for (CqStorage each : new CqStorage[]{new CqStorage(name + ".out", 4), new CqStorage(name + ".in", 8)})
            to.put(each.id, each);
    }

    private String name(SessionID session) throws ConfigError {
        String name = settings.isSetting(session, NAME) ? settings.getString(session, NAME) : session.toString();
        if (name.length() + 4 > NAME_MAX)
            throw new ConfigError("expected " + NAME + " of at most " + (NAME_MAX - 4) + " characters, got " + name);
        return name;
    }

    private synchronized void release(CqLog log, String name) {
        if (names.remove(log.path + name) && --log.users == 0) {
            logs.remove(log.path, log);
            log.close("it was closed");
        }
    }
}
