package cqrepl.interop;

import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.wire.WireDumper;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;

/**
 * DumpFile FILE [OUT] [--no-padding]: Chronicle's own dump of the bytes of one file, which is only read. The text goes
 * to OUT, in UTF-8, or is the line {"text"}.
 */
final class DumpFile {
    private DumpFile() {
    }

    static int run(Context c) throws IOException {
        boolean padding = !c.flag("--no-padding");
        Path file = Paths.get(c.arg(0, "FILE"));
        String out = c.argOr(1, null);
        String text = dump(Files.readAllBytes(file), padding);
        if (out == null) {
            c.out.line("text", text);
        } else {
            Files.write(Paths.get(out), text.getBytes(StandardCharsets.UTF_8));
            c.out.line("characters", text.length());
        }
        return 0;
    }

    /** In native memory, as a mapped file is: on the heap Chronicle mixes up names once one was not Latin-1. */
    private static String dump(byte[] data, boolean padding) {
        Bytes<?> bytes = Bytes.allocateElasticDirect(Math.max(data.length, 1));
        try {
            bytes.write(data);
            return WireDumper.of(bytes, padding).asString();
        } finally {
            bytes.releaseLast();
        }
    }
}
