package cqrepl.spark;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.DataSource$;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The source of the session that is written in Python: it writes, and decodes payloads. */
final class PythonSource {
  static final String NAME = "chronicle_python";
  static final String READING = "payload 'wire', and fields of a schema";
  private static final Set<String> COLUMNS = Set.of("queue", "index", "cycle", "sequence",
      "timestamp", "file", "position", "length", "hash", "payload");
  private static final String SCAN = "cqrepl.spark.scan";

  private PythonSource() {}

  static TableProvider provider(String what) {
    try {
      scala.Option<TableProvider> found =
          DataSource$.MODULE$.lookupDataSourceV2(NAME, SQLConf.get());
      if (found.isDefined()) return found.get();
    } catch (Exception error) { // Spark finds none, which Java is not told of by type
      if (!String.valueOf(error.getMessage()).contains("DATA_SOURCE_NOT_FOUND")) throw error;
    }
    throw Fault.table(what + " is done in Python: expected cqrepl.spark.register(spark) in this"
        + " session before, found no source " + NAME);
  }

  static Table table(String what, StructType schema, Map<String, String> properties) {
    return provider(what).getTable(schema, new Transform[0], properties);
  }

  /** True where the scan in Java cannot, or is not to, read what these options ask for. */
  static boolean isAskedFor(Map<String, String> options) {
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
    String schema = given.getOrDefault("schema", "none").trim();
    boolean isDecoded = !schema.equalsIgnoreCase("none")
        || given.getOrDefault("payload", "").trim().equalsIgnoreCase("wire");
    return System.getProperty(SCAN, "auto").equals("python") || !isNative() && isDecoded;
  }

  /** True where there are columns that are no columns of queues: fields of a schema. */
  static boolean isAskedFor(StructType schema) {
    return !isNative() && !COLUMNS.containsAll(Set.of(schema.fieldNames()));
  }

  static boolean isNative() {
    return System.getProperty(SCAN, "auto").equals("native");
  }
}
