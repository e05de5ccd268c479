package cqrepl.spark;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of the batch that a reader has at the moment; values are made when they are asked for. */
abstract class Column extends ColumnVector {
  final SplitReader reader;

  private Column(DataType type, SplitReader reader) {
    super(type);
    this.reader = reader;
  }

  static Column of(String name, DataType type, boolean isText, SplitReader reader) {
    switch (name) {
      case "index": return new Index(type, reader);
      case "sequence": return new SequenceNumber(type, reader);
      case "cycle": return new Cycle(type, reader);
      case "timestamp": return new Timestamp(type, reader);
      case "position": return new Position(type, reader);
      case "length": return new Length(type, reader);
      case "queue": return new Name(type, reader, false);
      case "file": return new Name(type, reader, true);
      case "hash": return new Hash(type, reader);
      case "payload": return isText ? new Text(type, reader) : new Payload(type, reader);
      default: throw new IllegalStateException(name); // the driver has looked
    }
  }

  private static final class Index extends Column {
    Index(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public long getLong(int row) { return reader.indexFirst + row; }
  }

  private static final class SequenceNumber extends Column {
    SequenceNumber(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public long getLong(int row) { return reader.current.sequenceOfFirst + row; }
  }

  private static final class Cycle extends Column {
    Cycle(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public int getInt(int row) { return reader.piece.cycle; }
  }

  private static final class Timestamp extends Column {
    Timestamp(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public long getLong(int row) { return reader.piece.startMicros; }
  }

  private static final class Position extends Column {
    Position(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public long getLong(int row) { return reader.current.positions[row]; }
  }

  private static final class Length extends Column {
    Length(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public int getInt(int row) { return reader.current.lengths[row]; }
  }

  private static final class Name extends Column {
    private final boolean isFile;
    private Piece of;
    private UTF8String text;

    Name(DataType type, SplitReader reader, boolean isFile) {
      super(type, reader);
      this.isFile = isFile;
    }

    @Override
    public UTF8String getUTF8String(int row) {
      if (of != reader.piece) {
        of = reader.piece;
        text = UTF8String.fromString(isFile ? of.file : of.queue);
      }
      return text;
    }
  }

  private static final class Payload extends Column {
    Payload(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public byte[] getBinary(int row) { return reader.body(row); }
  }

  private static final class Hash extends Column {
    private final Blake2b digester = new Blake2b();

    Hash(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public byte[] getBinary(int row) {
      PieceReader at = reader.current;
      return digester.digest(at.window(), at.offset(row), at.lengths[row]);
    }
  }

  private static final class Text extends Column {
    private static final byte EMPTY_STORED = (byte) 0x8f;

    Text(DataType type, SplitReader reader) { super(type, reader); }

    @Override
    public UTF8String getUTF8String(int row) {
      byte[] body = reader.body(row);
      if (body.length == 1 && body[0] == EMPTY_STORED) return UTF8String.EMPTY_UTF8;
      return UTF8String.fromString(decoded(body));
    }

    /** UTF-8; bytes that are none as \xHH. */
    private static String decoded(byte[] body) {
      CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder();
      ByteBuffer in = ByteBuffer.wrap(body);
      CharBuffer out = CharBuffer.allocate(4 * body.length + 4);
      while (true) {
        CoderResult result = decoder.decode(in, out, true);
        if (!result.isError()) break;
        for (int i = 0; i < result.length(); i++) out.put(String.format("\\x%02x", in.get() & 0xff));
      }
      return out.flip().toString();
    }
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() { return false; }

  @Override
  public int numNulls() { return 0; }

  @Override
  public boolean isNullAt(int row) { return false; }

  @Override
  public boolean getBoolean(int row) { throw new UnsupportedOperationException(); }

  @Override
  public byte getByte(int row) { throw new UnsupportedOperationException(); }

  @Override
  public short getShort(int row) { throw new UnsupportedOperationException(); }

  @Override
  public int getInt(int row) { throw new UnsupportedOperationException(); }

  @Override
  public long getLong(int row) { throw new UnsupportedOperationException(); }

  @Override
  public float getFloat(int row) { throw new UnsupportedOperationException(); }

  @Override
  public double getDouble(int row) { throw new UnsupportedOperationException(); }

  @Override
  public ColumnarArray getArray(int row) { throw new UnsupportedOperationException(); }

  @Override
  public ColumnarMap getMap(int row) { throw new UnsupportedOperationException(); }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw new UnsupportedOperationException();
  }

  @Override
  public UTF8String getUTF8String(int row) { throw new UnsupportedOperationException(); }

  @Override
  public byte[] getBinary(int row) { throw new UnsupportedOperationException(); }

  @Override
  public ColumnVector getChild(int ordinal) { throw new UnsupportedOperationException(); }
}
