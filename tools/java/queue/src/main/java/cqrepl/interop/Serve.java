package cqrepl.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * Serve: answers requests until standard input ends or "quit" comes. One JSON line in
 * ({"id", "command", "args", "props", "stdin", "out"}), one JSON line out ({"id", "exit", "lines", "stderr", "error"}).
 * Each request runs in a thread of its own, so answers come in the order in which they are ready.
 *
 * What a request's thread prints to System.out or System.err (Chronicle's warnings too) is its "stderr"; what other
 * threads print goes to the real standard error. Only answers reach the real standard output.
 */
final class Serve {
    private static final int RUNNING_MAX = 64;
    /** How long requests may go on after the end of input; "quit" does not wait for them. */
    private static final long FINISH_SECONDS = 10;

    private final Map<String, Command> commands;
    private final PrintStream answers;
    private final PerThreadStream stderr;
    private final Semaphore room = new Semaphore(RUNNING_MAX);

    private Serve(Map<String, Command> commands, PrintStream answers, PerThreadStream stderr) {
        this.commands = commands;
        this.answers = answers;
        this.stderr = stderr;
    }

    static int run(Map<String, Command> plain, Context c, PrintStream answers) throws Exception {
        Map<String, Command> commands = new HashMap<>(plain);
        Locks locks = new Locks();
        commands.put("holdlock", locks::hold);
        commands.put("releaselock", locks::release);
        Appenders appenders = new Appenders();
        commands.put("openappender", appenders::open);
        commands.put("useappender", appenders::use);
        commands.put("awaitwritelock", appenders::awaitWriteLock);
        commands.put("begindocument", appenders::begin);
        commands.put("enddocument", appenders::end);
        commands.put("closeappender", appenders::close);
        PerThreadStream stderr = new PerThreadStream(System.err);
        PrintStream caught = new PrintStream(stderr, true, StandardCharsets.UTF_8);
        System.setErr(caught);
        System.setOut(caught);
        new Serve(commands, answers, stderr).readRequests(c.in);
        return 0;
    }

    private void readRequests(BufferedReader in) throws IOException, InterruptedException {
        for (String line; (line = in.readLine()) != null; ) {
            JsonObject request;
            try {
                request = JsonParser.parseString(line).getAsJsonObject();
            } catch (RuntimeException e) {
                answer(failure(JsonNull.INSTANCE, "not a request: " + Common.describe(e)));
                continue;
            }
            JsonElement id = request.has("id") ? request.get("id") : JsonNull.INSTANCE;
            if (request.has("command") && "quit".equals(request.get("command").getAsString())) {
                answer(success(id));
                return;
            }
            if (!room.tryAcquire()) {
                answer(failure(id, RUNNING_MAX + " requests are running already"));
                continue;
            }
            Thread t = new Thread(() -> handle(id, request), "request " + id);
            t.setDaemon(true);
            t.start();
        }
        room.tryAcquire(RUNNING_MAX, FINISH_SECONDS, TimeUnit.SECONDS);
    }

    private void handle(JsonElement id, JsonObject request) {
        stderr.capture();
        JsonObject answer = success(id);
        try {
            answer.addProperty("exit", execute(request, answer.getAsJsonArray("lines")));
        } catch (Throwable t) {
            // the top of this thread: whatever it was, the caller must hear of it
            t.printStackTrace();
            answer.addProperty("exit", 1);
            answer.addProperty("error", Common.describe(t));
        } finally {
            answer.addProperty("stderr", stderr.captured());
            answer(answer);
            room.release();
        }
    }

    private int execute(JsonObject request, JsonArray lines) throws Exception {
        String name = request.get("command").getAsString();
        Command command = commands.get(name.toLowerCase());
        if (command == null)
            throw new IllegalArgumentException("no such command: " + name);
        List<String> args = strings(request, "args");
        Map<String, String> props = new HashMap<>();
        if (request.has("props"))
            request.getAsJsonObject("props").entrySet().forEach(e -> props.put(e.getKey(), e.getValue().getAsString()));
        BufferedReader in = new BufferedReader(new StringReader(String.join("\n", strings(request, "stdin"))));
        if (!request.has("out"))
            return command.run(new Context(args, props, in, Output.collecting(lines)));
        try (PrintStream file = Common.lineStream(new FileOutputStream(request.get("out").getAsString()))) {
            return command.run(new Context(args, props, in, Output.printing(file)));
        }
    }

    private static List<String> strings(JsonObject request, String field) {
        List<String> found = new ArrayList<>();
        if (request.has(field))
            request.getAsJsonArray(field).forEach(e -> found.add(e.getAsString()));
        return found;
    }

    private static JsonObject success(JsonElement id) {
        JsonObject answer = new JsonObject();
        answer.add("id", id);
        answer.addProperty("exit", 0);
        answer.add("lines", new JsonArray());
        answer.addProperty("stderr", "");
        return answer;
    }

    private static JsonObject failure(JsonElement id, String error) {
        JsonObject answer = success(id);
        answer.addProperty("exit", 1);
        answer.addProperty("error", error);
        return answer;
    }

    private void answer(JsonObject answer) {
        String line = Common.json(answer);
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
    }

    /** Keeps what the threads that asked for it print, up to a limit; passes on the rest. */
    private static final class PerThreadStream extends OutputStream {
        private static final int CAPTURED_MAX_BYTES = 64 << 10;

        private final ThreadLocal<ByteArrayOutputStream> mine = new ThreadLocal<>();
        private final OutputStream others;

        PerThreadStream(OutputStream others) {
            this.others = others;
        }

        void capture() {
            mine.set(new ByteArrayOutputStream());
        }

        String captured() {
            return mine.get().toString(StandardCharsets.UTF_8);
        }

        @Override
        public void write(int b) throws IOException {
            write(new byte[]{(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] b, int offset, int length) throws IOException {
            ByteArrayOutputStream kept = mine.get();
            if (kept == null)
                others.write(b, offset, length);
            else if (kept.size() + length <= CAPTURED_MAX_BYTES)
                kept.write(b, offset, length);
        }

        @Override
        public void flush() throws IOException {
            others.flush();
        }
    }
}
