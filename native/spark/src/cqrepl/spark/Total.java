package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A number that a plan tells without any excerpt: a count, or the least or greatest of a column. */
final class Total {
  private static final Set<String> KNOWN = Set.of("queue", "index", "cycle", "sequence", "timestamp");
  final String label;
  final DataType type;
  private final String column; // null: a count
  private final int nth; // of the pair of least and greatest

  private Total(String label, DataType type, String column, int nth) {
    this.label = label;
    this.type = type;
    this.column = column;
    this.nth = nth;
  }

  /** All that are asked for; null where one of them needs the excerpts. */
  static List<Total> all(Aggregation aggregation, StructType schema) {
    if (aggregation.groupByExpressions().length > 0) return null;
    List<Total> found = new ArrayList<>();
    for (AggregateFunc each : aggregation.aggregateExpressions()) {
      Total total = of(each, found.size(), schema);
      if (total == null) return null;
      found.add(total);
    }
    return found;
  }

  private static Total of(AggregateFunc each, int number, StructType schema) {
    String label = "total" + number;
    if (each instanceof CountStar) return new Total(label, DataTypes.LongType, null, 0);
    if (each instanceof Count count) {
      boolean isOfAll = !count.isDistinct() && columnOf(count.column()) != null;
      return isOfAll ? new Total(label, DataTypes.LongType, null, 0) : null;
    }
    boolean isMin = each instanceof Min;
    if (!isMin && !(each instanceof Max)) return null;
    String column = columnOf(isMin ? ((Min) each).column() : ((Max) each).column());
    if (column == null || !KNOWN.contains(column)) return null;
    return new Total(label, schema.apply(column).dataType(), column, isMin ? 0 : 1);
  }

  private static String columnOf(Expression expression) {
    if (!(expression instanceof NamedReference reference)) return null;
    return reference.fieldNames().length == 1 ? reference.fieldNames()[0] : null;
  }

  Object value(JsonNode totals) {
    if (column == null) return totals.get("count").asLong();
    JsonNode pair = totals.get("columns").get(column);
    if (pair == null) return null;
    JsonNode value = pair.get(nth);
    if (column.equals("queue")) return UTF8String.fromString(value.asText());
    return column.equals("cycle") ? (Object) value.asInt() : (Object) value.asLong();
  }
}
