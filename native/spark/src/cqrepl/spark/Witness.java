package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.FileTime;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Facts that the driver saw of a queue, by which a task knows that it sees the same one. */
final class Witness implements Serializable {
  private static final long serialVersionUID = 1;
  final String directory;
  private final String table;
  private final HashMap<Long, String> excerpts = new HashMap<>();
  private final HashMap<String, long[]> files = new HashMap<>();
  private final HashMap<Long, Long> longs = new HashMap<>();

  Witness(JsonNode told) {
    directory = told.get("directory").asText();
    table = told.get("table").asText();
    for (JsonNode each : told.get("excerpts")) excerpts.put(each.get(0).asLong(), each.get(1).asText());
    for (JsonNode each : told.get("files")) {
      files.put(each.get(0).asText(), new long[] {each.get(1).asLong(), each.get(2).asLong()});
    }
    for (JsonNode each : told.get("longs")) longs.put(each.get(0).asLong(), each.get(1).asLong());
  }

  /** Compares the identity, and the store files that no writer writes to any more. */
  void check() throws IOException {
    checkIdentity();
    for (Map.Entry<String, long[]> each : files.entrySet()) {
      Path path = Paths.get(directory, each.getKey());
      if (!Files.exists(path)) continue; // the reading tells
      try (FileChannel opened = FileChannel.open(path)) { // a file system over the network asks anew
        long[] seen = each.getValue();
        FileTime changed = (FileTime) Files.getAttribute(path, "unix:ctime");
        if (opened.size() != seen[0] || changed.to(TimeUnit.NANOSECONDS) != seen[1]) {
          throw Fault.otherQueue(directory, each.getKey() + " is another file, or was written to since");
        }
      }
    }
  }

  private void checkIdentity() throws IOException {
    if (longs.isEmpty() || !Files.isDirectory(Paths.get(directory))) return;
    Path path = Paths.get(directory, table);
    if (!Files.exists(path)) throw Fault.otherQueue(directory, "it has no " + table);
    try (FileChannel opened = FileChannel.open(path)) {
      ByteBuffer word = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
      for (Map.Entry<Long, Long> each : longs.entrySet()) {
        word.clear();
        opened.read(word, each.getKey());
        if (word.hasRemaining() || word.getLong(0) != each.getValue()) {
          throw Fault.otherQueue(directory, "its identity is another one");
        }
      }
    }
  }

  /** True when the driver has seen this excerpt. */
  boolean knows(long index) {
    return excerpts.containsKey(index);
  }

  void checkExcerpt(long index, byte[] digest) {
    if (!HexFormat.of().formatHex(digest).equals(excerpts.get(index))) {
      throw Fault.otherQueue(directory, "excerpt 0x" + Long.toHexString(index) + " is another one");
    }
  }
}
