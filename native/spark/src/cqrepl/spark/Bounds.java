package cqrepl.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.unsafe.types.UTF8String;

/** The part of a filter that a plan keeps exactly; Spark does not look at it again. */
final class Bounds {
  private static final Set<String> NUMBERS = Set.of("index", "cycle", "timestamp");
  private static final String QUEUE = "queue";
  private static final Map<String, String> FLIPPED =
      Map.of("=", "=", "<=>", "<=>", "<", ">", "<=", ">=", ">", "<", ">=", "<=");
  private final Map<String, long[]> bounds = new LinkedHashMap<>();
  private Set<String> queues;

  /** True where a condition is kept from now on. */
  boolean takes(Predicate condition) {
    Expression[] parts = condition.children();
    String name = condition.name();
    if (name.equals("IS_NOT_NULL")) return columnOf(parts[0]) != null; // no column is ever null
    if (name.equals("IN")) return takesQueues(parts);
    if (parts.length != 2 || !FLIPPED.containsKey(name)) return false;
    boolean isFlipped = parts[0] instanceof Literal;
    String column = columnOf(parts[isFlipped ? 1 : 0]);
    Expression other = parts[isFlipped ? 0 : 1];
    if (column == null || !(other instanceof Literal<?> literal)) return false;
    String sign = isFlipped ? FLIPPED.get(name) : name;
    if (literal.value() instanceof UTF8String && column.equals(QUEUE) && sign.startsWith("=")) {
      return keep(Set.of(literal.value().toString()));
    }
    return NUMBERS.contains(column) && literal.value() instanceof Number number
        && narrow(column, sign, number.longValue());
  }

  private boolean takesQueues(Expression[] parts) {
    if (!QUEUE.equals(columnOf(parts[0]))) return false;
    Set<String> names = new HashSet<>();
    for (int i = 1; i < parts.length; i++) {
      if (!(parts[i] instanceof Literal<?> each) || !(each.value() instanceof UTF8String)) return false;
      names.add(each.value().toString());
    }
    return keep(names);
  }

  private boolean keep(Set<String> names) {
    Set<String> both = new HashSet<>(names);
    if (queues != null) both.retainAll(queues);
    queues = both;
    return true;
  }

  private boolean narrow(String column, String sign, long value) {
    long[] pair = bounds.computeIfAbsent(column, each -> new long[] {Long.MIN_VALUE, Long.MAX_VALUE});
    boolean isEmpty = sign.equals("<") && value == Long.MIN_VALUE
        || sign.equals(">") && value == Long.MAX_VALUE;
    if (isEmpty) {
      pair[0] = Long.MAX_VALUE;
      pair[1] = Long.MIN_VALUE;
    }
    switch (sign) {
      case "<": pair[1] = Math.min(pair[1], value - (isEmpty ? 0 : 1)); break;
      case "<=": pair[1] = Math.min(pair[1], value); break;
      case ">": pair[0] = Math.max(pair[0], value + (isEmpty ? 0 : 1)); break;
      case ">=": pair[0] = Math.max(pair[0], value); break;
      default:
        pair[0] = Math.max(pair[0], value);
        pair[1] = Math.min(pair[1], value);
    }
    return true;
  }

  private static String columnOf(Expression expression) {
    if (!(expression instanceof NamedReference reference)) return null;
    return reference.fieldNames().length == 1 ? reference.fieldNames()[0] : null;
  }

  void tell(ObjectNode wanted) {
    ObjectNode told = wanted.putObject("bounds");
    bounds.forEach((column, pair) -> told.putArray(column).add(pair[0]).add(pair[1]));
    if (queues == null) return;
    ArrayNode names = wanted.putArray("queues");
    queues.forEach(names::add);
  }

  @Override
  public String toString() {
    StringBuilder text = new StringBuilder();
    bounds.forEach((column, pair) ->
        text.append(' ').append(column).append(' ').append(pair[0]).append("..").append(pair[1]));
    return queues == null ? text.toString() : text + " queue " + queues;
  }
}
