package cqrepl.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashSet;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Reads a split in a task, all of it or nothing; or what is left, where that may be. */
final class SplitReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOGGER = LoggerFactory.getLogger(SplitReader.class);
  private final Split split;
  private final boolean needsBodies;
  private final boolean mayBeLost;
  private final ColumnarBatch batch;
  private final HashSet<String> checked = new HashSet<>();
  private final Blake2b digester = new Blake2b();
  private ByteBuffer window;
  private int nth;

  Piece piece;
  PieceReader current;
  /** Of the first row of the batch. */
  long indexFirst;

  SplitReader(Split split, StructType columns, boolean isText, boolean mayBeLost) {
    this.split = split;
    this.mayBeLost = mayBeLost;
    StructField[] fields = columns.fields();
    ColumnVector[] vectors = new ColumnVector[fields.length];
    boolean needs = false;
    for (int i = 0; i < fields.length; i++) {
      String name = fields[i].name();
      vectors[i] = Column.of(name, fields[i].dataType(), isText, this);
      needs |= name.equals("payload") || name.equals("hash");
    }
    needsBodies = needs;
    batch = new ColumnarBatch(vectors);
  }

  @Override
  public boolean next() throws IOException {
    while (true) {
      try {
        if (current != null) {
          if (current.next()) {
            indexFirst = piece.indexFirst + current.sequenceOfFirst - piece.sequenceFirst;
            batch.setNumRows(current.rows);
            return true;
          }
          leave();
        }
        if (nth == split.pieces.size()) return false;
        piece = split.pieces.get(nth++);
        Witness witness = split.witnesses.get(piece.directory);
        if (witness != null && checked.add(piece.directory)) witness.check();
        if (witness != null) checkEnds(witness);
        current = new PieceReader(piece, needsBodies, window);
      } catch (Fault fault) {
        if (!mayBeLost || !fault.isGone()) throw fault;
        LOGGER.warn("left out what is lost: {}", fault.getMessage());
        leave();
      }
    }
  }

  /** Reads the first and the last excerpt where the driver has seen them, and compares. */
  private void checkEnds(Witness witness) throws IOException {
    long last = piece.indexFirst + piece.count - 1;
    for (long index : new long[] {piece.indexFirst, last}) {
      if (!witness.knows(index) || !Files.exists(Paths.get(piece.directory, piece.file))) continue;
      byte[] digest = digestOf(index);
      if (digest != null) witness.checkExcerpt(index, digest);
    }
  }

  /** Of one excerpt; null where it cannot be read: the reading tells why. */
  private byte[] digestOf(long index) throws IOException {
    try (PieceReader reader = new PieceReader(piece.only(index), true, window)) {
      byte[] digest = null;
      if (reader.next()) digest = digester.digest(reader.window(), reader.offset(0), reader.lengths[0]);
      window = reader.window();
      return digest;
    } catch (Fault fault) {
      return null;
    }
  }

  private void leave() throws IOException {
    if (current != null) {
      window = current.window();
      current.close();
      current = null;
    }
  }

  byte[] body(int row) {
    byte[] found = new byte[current.lengths[row]];
    current.window().get(current.offset(row), found);
    return found;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    leave();
  }
}
