package cqrepl.fix;

import java.io.IOException;

/** This host leads the queue of the engine no longer, so nothing more may be written or sent here. */
public final class SessionNotLeader extends IOException {
    private static final long serialVersionUID = 1L;

    SessionNotLeader(String message) {
        super(message);
    }
}
