package cqrepl.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import net.openhft.chronicle.bytes.Bytes;
import net.openhft.chronicle.wire.DocumentContext;

import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;

/** Text forms of indexes, payloads and errors, and the payloads that Append makes. */
final class Common {
    private static final char[] HEX = "0123456789abcdef".toCharArray();
    private static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();

    private Common() {
    }

    static String json(JsonElement element) {
        return GSON.toJson(element);
    }

    /** A stream for JSON lines; it is flushed by its user, not at each line. */
    static PrintStream lineStream(OutputStream to) {
        return new PrintStream(new java.io.BufferedOutputStream(to, 1 << 16), false, StandardCharsets.UTF_8);
    }

    static String describe(Throwable t) {
        return t.getClass().getSimpleName() + ": " + t.getMessage();
    }

    static String hex(byte[] b) {
        char[] c = new char[b.length * 2];
        for (int i = 0; i < b.length; i++) {
            c[2 * i] = HEX[(b[i] >> 4) & 15];
            c[2 * i + 1] = HEX[b[i] & 15];
        }
        return new String(c);
    }

    static byte[] unhex(String s) {
        if (s.length() % 2 != 0)
            throw new IllegalArgumentException("odd number of hex digits: " + s.length());
        byte[] b = new byte[s.length() / 2];
        for (int i = 0; i < b.length; i++)
            b[i] = (byte) Integer.parseInt(s.substring(2 * i, 2 * i + 2), 16);
        return b;
    }

    /** 16 hex digits. */
    static String index(long index) {
        char[] c = new char[16];
        for (int i = 0; i < 16; i++)
            c[i] = HEX[(int) (index >>> (60 - 4 * i)) & 15];
        return new String(c);
    }

    static String sha256(byte[] b) {
        try {
            return hex(MessageDigest.getInstance("SHA-256").digest(b));
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
    }

    /** The body of a document, without consuming it. Byte by byte: a bulk read stops at the end of a mapping. */
    static byte[] body(DocumentContext dc) {
        Bytes<?> bytes = dc.wire().bytes();
        byte[] b = new byte[Math.toIntExact(bytes.readRemaining())];
        long start = bytes.readPosition();
        for (int i = 0; i < b.length; i++)
            b[i] = bytes.readByte(start + i);
        return b;
    }

    /** One line for an excerpt: its payload, or with --sha its length and digest. */
    static void excerpt(Output out, long index, byte[] b, boolean sha) {
        if (sha)
            out.line("index", index(index), "length", b.length, "sha256", sha256(b));
        else
            out.line("index", index(index), "payload", hex(b));
    }

    /**
     * Payload number i for a seed: SplitMix64 started at seed * 1000003 + i, its outputs laid down little-endian;
     * the first 8 bytes (or as many as fit) are then replaced by i, little-endian.
     */
    static byte[] payload(long seed, long i, int size) {
        byte[] b = new byte[size];
        long s = seed * 1000003L + i;
        for (int p = 0; p < size; p += 8) {
            s += 0x9E3779B97F4A7C15L;
            long z = s;
            z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
            z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
            z ^= z >>> 31;
            for (int k = 0; k < 8 && p + k < size; k++)
                b[p + k] = (byte) (z >>> (8 * k));
        }
        for (int k = 0; k < 8 && k < size; k++)
            b[k] = (byte) (i >>> (8 * k));
        return b;
    }
}
