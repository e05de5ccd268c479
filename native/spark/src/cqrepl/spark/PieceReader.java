package cqrepl.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;

/**
 * Walks over the documents of a piece, a batch at a time.
 *
 * <p>Theory of operation. The file is read by position into one buffer, and is never mapped. So a
 * file that is cut meanwhile is a short read and no fault of memory, nothing has to be unmapped for
 * quarantine or retention to go on, and a document that crosses a boundary of the buffer is read
 * anew from its header. The pages of a file that a writer has mapped are the ones that are read.
 *
 * <p>The piece was whole when it was planned. A header that is not ready is an excerpt that has
 * gone. The last excerpt has to stand where the driver has found it, from a place of its own: a
 * walk that a wrong length has led astray is not there with as many excerpts. That ends the task,
 * and Spark drops what the task has given. The index slots on the way tell where it went astray.
 */
final class PieceReader implements Closeable {
  static final int ROWS = 4096;
  private static final int WINDOW = 1 << 20;
  private static final int SMALL = 1 << 12;
  private static final int LENGTH_MASK = 0x3fffffff;
  private static final int META_DATA = 0x40000000;
  private static final int HEADER = 4;

  private final Piece piece;
  private final FileChannel channel;
  private final boolean needsBodies;
  private final ByteBuffer slots = ByteBuffer.allocate(SMALL).order(ByteOrder.LITTLE_ENDIAN);
  private final long end;
  private long slotsAt = -1;
  private ByteBuffer window;
  private long base;
  private long position;
  private long sequence;
  private long nextSlot;
  private long size;
  private int lengthLast;
  private Fault astray; // what a slot said otherwise, as long as no later place agrees

  /** Of the rows of the batch. */
  final long[] positions = new long[ROWS];
  final int[] lengths = new int[ROWS];
  int rows;
  long sequenceOfFirst;

  PieceReader(Piece piece, boolean needsBodies, ByteBuffer window) throws IOException {
    this.piece = piece;
    this.needsBodies = needsBodies;
    this.window = window == null ? direct(WINDOW) : window;
    this.window.limit(0);
    try {
      channel = FileChannel.open(Paths.get(piece.directory, piece.file));
    } catch (NoSuchFileException error) {
      throw gone(piece.indexFirst, "its store file was removed");
    }
    if (piece.lastPosition < 0) {
      channel.close();
      throw gone(piece.indexFirst, "it was there when the job was planned");
    }
    position = piece.beginPosition;
    sequence = piece.beginSequence;
    end = piece.sequenceFirst + piece.count;
    nextSlot = piece.spacing == 0 ? Long.MAX_VALUE : roundedUp(sequence, piece.spacing);
  }

  /** The buffer, which the next piece may use when this one is done. */
  ByteBuffer window() {
    return window;
  }

  /** Where the body of a row stands in the buffer. */
  int offset(int row) {
    return (int) (positions[row] + HEADER - base);
  }

  /** Fills the arrays with the next rows; false behind the last one. */
  boolean next() throws IOException {
    rows = 0;
    sequenceOfFirst = Math.max(sequence, piece.sequenceFirst);
    int gap = piece.alignment - 1;
    while (sequence < end && rows < ROWS) {
      long at = (position + gap) & ~(long) gap;
      if (!covers(at, HEADER) && !moveTo(at, HEADER)) break;
      int word = window.getInt((int) (at - base));
      if (word == 0 || word < 0) {
        throw gone(index(sequence), "it was there when the job was planned");
      }
      int length = word & LENGTH_MASK;
      if (needsBodies) {
        if (!covers(at, HEADER + length) && !moveTo(at, HEADER + length)) break;
      } else if (at + HEADER + length > size) {
        checkSize(at, length);
      }
      if ((word & META_DATA) == 0) pass(at, length);
      lengthLast = length;
      position = at + HEADER + length;
    }
    return rows > 0;
  }

  private void pass(long at, int length) throws IOException {
    if (sequence == nextSlot) checkSlot(at);
    if (sequence >= piece.sequenceFirst) {
      positions[rows] = at;
      lengths[rows++] = length;
    }
    if (++sequence == end && at != piece.lastPosition && piece.lastPosition != Piece.ANY) {
      throw astray != null ? astray : damaged("expected excerpt 0x" + Long.toHexString(index(end - 1)) + " at "
          + piece.lastPosition + ", as when the job was planned; the walk has come", at);
    }
  }

  private boolean covers(long at, long count) {
    return at >= base && at + count <= base + window.limit();
  }

  /** Reads on at a position; false where rows of this batch are in the buffer, and must stay. */
  private boolean moveTo(long at, long count) throws IOException {
    if (needsBodies && rows > 0) return false;
    if (count > window.capacity()) {
      checkSize(at, (int) (count - HEADER)); // before there is memory for what a wrong length says
      window = ByteBuffer.allocate((int) count).order(ByteOrder.LITTLE_ENDIAN);
    }
    boolean isSparse = piece.count == 1 || !needsBodies && lengthLast > 4 * SMALL;
    int wanted = (int) Math.max(isSparse ? SMALL : WINDOW, count);
    window.clear().limit(0);
    int got = 0;
    while (got >= 0 && window.position() < wanted) {
      window.limit(Math.min(wanted, window.position() + WINDOW)); // no more memory aside than that
      got = channel.read(window, at + window.position());
    }
    window.flip();
    base = at;
    if (window.limit() < HEADER) {
      throw gone(index(sequence), "the file was cut to " + channel.size() + " bytes");
    }
    if (window.limit() < count) {
      checkSize(at, (int) (count - HEADER));
      throw gone(index(sequence), "the file was cut"); // and has grown again
    }
    return true;
  }

  private void checkSize(long at, int length) throws IOException {
    size = channel.size();
    if (at + HEADER + length > size) {
      throw damaged("expected a document within the file's " + size + " bytes, found one of "
          + length + " bytes", at);
    }
  }

  private void checkSlot(long at) throws IOException {
    nextSlot += piece.spacing;
    long recorded = slot(sequence);
    if (recorded == at) {
      astray = null;
    } else if (recorded != 0 && astray == null) {
      astray = damaged("expected excerpt 0x" + Long.toHexString(index(sequence)) + " at " + recorded
          + ", as its index slot has it; the walk has come", at);
    }
  }

  /** The position that an index slot names; 0 where there is none. */
  private long slot(long sequence) throws IOException {
    long nth = sequence / piece.spacing / piece.slotCount - piece.pageFirst;
    if (nth < 0 || nth >= piece.slots.length || piece.slots[(int) nth] < 0) return 0;
    long at = piece.slots[(int) nth] + sequence / piece.spacing % piece.slotCount * Long.BYTES;
    if (slotsAt < 0 || at < slotsAt || at + Long.BYTES > slotsAt + slots.limit()) {
      slots.clear();
      channel.read(slots, at);
      slots.flip();
      slotsAt = at;
      if (slots.limit() < Long.BYTES) return 0;
    }
    return slots.getLong((int) (at - slotsAt));
  }

  private long index(long sequence) {
    return piece.indexFirst + sequence - piece.sequenceFirst;
  }

  private Fault gone(long index, String reason) {
    return Fault.gone(piece.directory, index, reason);
  }

  private Fault damaged(String reason, long at) {
    return Fault.damaged(piece.path(), reason, at);
  }

  private static long roundedUp(long value, long unit) {
    return (value + unit - 1) / unit * unit;
  }

  private static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.LITTLE_ENDIAN);
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
