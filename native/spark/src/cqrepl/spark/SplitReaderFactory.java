package cqrepl.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the reader of each task. */
final class SplitReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1;
  private final StructType columns;
  private final boolean isText;
  private final boolean mayBeLost;

  SplitReaderFactory(StructType columns, boolean isText, boolean mayBeLost) {
    this.columns = columns;
    this.isText = isText;
    this.mayBeLost = mayBeLost;
  }

  @Override
  public boolean supportColumnarReads(InputPartition split) {
    return true;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition split) {
    throw new UnsupportedOperationException("rows come in batches");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition split) {
    return new SplitReader((Split) split, columns, isText, mayBeLost);
  }
}
