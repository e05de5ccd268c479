package cqrepl.interop;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;

import java.io.PrintStream;

/** Where a command's JSON lines go: printed one by one, or collected for an answer. */
abstract class Output {
    /** Longer outputs would fill the memory of the process: they belong in a file. */
    private static final long COLLECTED_MAX_CHARS = 64L << 20;

    abstract void emit(JsonObject line);

    void flush() {
    }

    /** One line of names and values in turn: strings, numbers, booleans or JSON elements. */
    final void line(Object... pairs) {
        JsonObject o = new JsonObject();
        for (int i = 0; i < pairs.length; i += 2) {
            String name = (String) pairs[i];
            Object value = pairs[i + 1];
            if (value instanceof JsonElement)
                o.add(name, (JsonElement) value);
            else if (value instanceof Number)
                o.addProperty(name, (Number) value);
            else if (value instanceof Boolean)
                o.addProperty(name, (Boolean) value);
            else
                o.addProperty(name, (String) value);
        }
        emit(o);
    }

    static Output printing(PrintStream stream) {
        return new Output() {
            @Override
            void emit(JsonObject line) {
                stream.println(Common.json(line));
            }

            @Override
            void flush() {
                stream.flush();
            }
        };
    }

    static Output collecting(JsonArray lines) {
        return new Output() {
            private long chars;

            @Override
            void emit(JsonObject line) {
                chars += Common.json(line).length();
                if (chars > COLLECTED_MAX_CHARS)
                    throw new IllegalStateException("more output than fits in an answer: name a file in \"out\"");
                lines.add(line);
            }
        };
    }
}
