package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** One row of totals, from the index pages: no task runs, and no excerpt is read. */
final class TotalsScan implements LocalScan {
  private final ChronicleScan scan;
  private final List<Total> totals;

  TotalsScan(ChronicleScan scan, List<Total> totals) {
    this.scan = scan;
    this.totals = totals;
  }

  @Override
  public StructType readSchema() {
    StructType found = new StructType();
    for (Total each : totals) found = found.add(each.label, each.type, true);
    return found;
  }

  @Override
  public InternalRow[] rows() {
    JsonNode told = scan.plan(false).get("totals");
    Object[] values = totals.stream().map(each -> each.value(told)).toArray();
    return new InternalRow[] {new GenericInternalRow(values)};
  }

  @Override
  public String description() {
    return scan.description() + " totals of index pages";
  }
}
