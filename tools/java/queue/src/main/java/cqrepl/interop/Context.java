package cqrepl.interop;

import net.openhft.chronicle.core.time.SetTimeProvider;
import net.openhft.chronicle.queue.RollCycle;
import net.openhft.chronicle.queue.RollCycles;
import net.openhft.chronicle.queue.impl.single.SingleChronicleQueueBuilder;

import java.io.BufferedReader;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * What one call of a command gets: its arguments, its knobs ("interop.*"; those of the JVM hold where
 * the call names none), its input lines and the place for its output.
 */
final class Context {
    final BufferedReader in;
    final Output out;
    private final List<String> args;
    private final Map<String, String> props;

    Context(List<String> args, Map<String, String> props, BufferedReader in, Output out) {
        this.args = new ArrayList<>(args);
        this.props = props;
        this.in = in;
        this.out = out;
    }

    /** Takes a bare option out of the arguments. */
    boolean flag(String name) {
        return args.remove(name);
    }

    /** Takes an option and the word after it out of the arguments; null when it is not there. */
    String option(String name) {
        int at = args.indexOf(name);
        if (at < 0)
            return null;
        args.remove(at);
        if (at == args.size())
            throw new IllegalArgumentException(name + " needs a value");
        return args.remove(at);
    }

    /** Argument i, after all options have been taken out. */
    String arg(int i, String what) {
        if (i >= args.size())
            throw new IllegalArgumentException("missing argument " + what);
        return args.get(i);
    }

    /** Argument i, or the given value when there are fewer. */
    String argOr(int i, String otherwise) {
        return i < args.size() ? args.get(i) : otherwise;
    }

    String prop(String name) {
        String value = props.get("interop." + name);
        return value != null ? value : System.getProperty("interop." + name);
    }

    /**
     * A builder with every knob set; the roll cycle is read from the metadata where none is named. Without a roll
     * cycle the directory must be there already: Chronicle would make an empty daily queue in it.
     */
    SingleChronicleQueueBuilder builder(String dir, String cycleOrNull) {
        String cycle = cycleOrNull != null ? cycleOrNull : prop("cycle");
        if (cycle == null && !new File(dir).isDirectory())
            throw new IllegalArgumentException("no such directory: " + dir);
        SingleChronicleQueueBuilder b = SingleChronicleQueueBuilder.binary(dir);
        if (cycle != null)
            b.rollCycle(cycleByName(cycle));
        if (prop("blockSize") != null)
            b.blockSize(Long.parseLong(prop("blockSize")));
        if (prop("epoch") != null)
            b.epoch(Long.parseLong(prop("epoch")));
        if (prop("timeoutMs") != null)
            b.timeoutMS(Long.parseLong(prop("timeoutMs")));
        if (prop("sourceId") != null)
            b.sourceId(Integer.parseInt(prop("sourceId")));
        if (prop("indexCount") != null)
            b.indexCount(Integer.parseInt(prop("indexCount")));
        if (prop("indexSpacing") != null)
            b.indexSpacing(Integer.parseInt(prop("indexSpacing")));
        if (Boolean.parseBoolean(prop("readOnly")))
            b.readOnly(true);
        if (prop("time") != null) {
            SetTimeProvider clock = new SetTimeProvider();
            clock.currentTimeMillis(Long.parseLong(prop("time")));
            b.timeProvider(clock);
        }
        return b;
    }

    private static RollCycle cycleByName(String name) {
        for (RollCycle c : RollCycles.all())
            if (c.toString().equals(name))
                return c;
        throw new IllegalArgumentException("no such roll cycle: " + name);
    }
}
