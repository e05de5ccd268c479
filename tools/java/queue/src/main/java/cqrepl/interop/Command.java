package cqrepl.interop;

/** One command of the tool; it may run beside others in the same process, so it touches only its context. */
interface Command {
    /** @return the exit code: 0, or what the command documents */
    int run(Context context) throws Exception;
}
