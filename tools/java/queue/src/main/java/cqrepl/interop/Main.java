package cqrepl.interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Entry point of the jar: the first argument names the command. */
public final class Main {
    private Main() {
    }

    public static void main(String[] argv) throws Exception {
        quiet();
        Map<String, Command> commands = new TreeMap<>();
        commands.put("append", Append::run);
        commands.put("appendat", AppendAt::run);
        commands.put("calls", Calls::run);
        commands.put("dump", Dump::run);
        commands.put("dumpfile", DumpFile::run);
        commands.put("meta", Meta::run);
        commands.put("orders", Orders::run);
        commands.put("partition", Partition::run);
        commands.put("tail", Tail::run);
        commands.put("tryappend", TryAppend::run);
        commands.put("verify", Verify::run);
        String name = argv.length == 0 ? "" : argv[0].toLowerCase();
        List<String> args = Arrays.asList(argv).subList(Math.min(1, argv.length), argv.length);
        // Chronicle may print to System.out: from here on that is standard error
        PrintStream stdout = Common.lineStream(new FileOutputStream(FileDescriptor.out));
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Context context = new Context(args, Map.of(), in, Output.printing(stdout));
        int exit;
        if (name.equals("serve"))
            exit = Serve.run(commands, context, stdout);
        else if (commands.containsKey(name))
            exit = commands.get(name).run(context);
        else
            throw new IllegalArgumentException("the command is serve or one of " + commands.keySet());
        stdout.flush();
        System.exit(exit);
    }

    private static void quiet() {
        System.setProperty("chronicle.analytics.disable", "true");
        System.setProperty("chronicle.disable.analytics", "true");
        System.setProperty("chronicle.announcer.disable", "true");
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        if (System.getProperty("disable.thread.safety") == null)
            System.setProperty("disable.thread.safety", "true");
    }
}
