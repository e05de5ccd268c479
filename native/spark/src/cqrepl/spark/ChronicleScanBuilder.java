package cqrepl.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Takes what Spark can leave to a scan: columns, bounds, a limit, counts, least and greatest. */
final class ChronicleScanBuilder
    implements SupportsPushDownRequiredColumns,
        SupportsPushDownV2Filters,
        SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final ChronicleTable table;
  private final Map<String, String> options;
  private final Bounds bounds = new Bounds();
  private StructType columns;
  private Predicate[] pushed = new Predicate[0];
  private Integer limit;
  private List<Total> totals;

  ChronicleScanBuilder(ChronicleTable table, Map<String, String> options) {
    this.table = table;
    this.options = options;
    this.columns = table.schema();
  }

  @Override
  public void pruneColumns(StructType wanted) {
    columns = wanted;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] conditions) {
    List<Predicate> taken = new ArrayList<>();
    List<Predicate> left = new ArrayList<>();
    for (Predicate each : conditions) (bounds.takes(each) ? taken : left).add(each);
    pushed = taken.toArray(new Predicate[0]);
    return left.toArray(new Predicate[0]);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed;
  }

  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true; // the plan ends there in each case; Spark may still look
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return Total.all(aggregation, table.schema()) != null;
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    totals = Total.all(aggregation, table.schema());
    return totals != null;
  }

  @Override
  public Scan build() {
    ChronicleScan scan = new ChronicleScan(table, options, columns, bounds, limit);
    return totals == null ? scan : new TotalsScan(scan, totals);
  }
}
