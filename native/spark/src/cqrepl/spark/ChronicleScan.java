package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsReportOrdering;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A scan of queues, planned once, when Spark asks for the first thing that depends on it. */
final class ChronicleScan implements Scan, Batch, SupportsReportOrdering {
  private final ChronicleTable table;
  private final Map<String, String> options;
  private final StructType columns;
  private final Bounds bounds;
  private final Integer limit;
  private JsonNode planned;

  ChronicleScan(ChronicleTable table, Map<String, String> options, StructType columns,
      Bounds bounds, Integer limit) {
    this.table = table;
    this.options = options;
    this.columns = columns;
    this.bounds = bounds;
    this.limit = limit;
  }

  /** The plan: where the queues end, totals, and, where they are asked for, tasks. */
  synchronized JsonNode plan(boolean withTasks) {
    if (planned != null && (!withTasks || planned.has("tasks"))) return planned;
    ObjectNode request = Planner.request("batch", options, table.schema());
    request.set("ends", table.ends());
    request.put("tasks", withTasks);
    ObjectNode wanted = request.putObject("wanted");
    bounds.tell(wanted);
    if (limit != null) wanted.put("limit", limit);
    planned = Planner.batch(request);
    table.endsAt(planned.get("ends"));
    return planned;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return "chronicle" + bounds + (limit == null ? "" : " limit " + limit);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return Split.all(plan(true).get("tasks"));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    boolean isText = plan(true).get("payload").asText().equals("text");
    return new SplitReaderFactory(columns, isText, false);
  }

  /** By index, where there is one queue only: a task has its pieces in their order. */
  @Override
  public SortOrder[] outputOrdering() {
    boolean hasIndex = Arrays.asList(columns.fieldNames()).contains("index");
    if (!hasIndex || plan(true).get("queues").asInt() != 1) return new SortOrder[0];
    return new SortOrder[] {Expressions.sort(Expressions.column("index"), SortDirection.ASCENDING)};
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return new ChronicleStream(options, table.schema(), columns);
  }
}
