package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Queues as one table; a snapshot, which ends where the queues did when it was made or read first. */
final class ChronicleTable implements SupportsRead, SupportsWrite {
  private static final String KEPT = "chronicle";
  private final StructType schema;
  private final Map<String, String> properties;
  private JsonNode ends;

  ChronicleTable(StructType schema, Map<String, String> properties, JsonNode ends) {
    this.schema = schema;
    this.properties = properties;
    this.ends = ends;
  }

  @Override
  public String name() {
    return KEPT;
  }

  @Override
  @SuppressWarnings("deprecation") // what replaces it asks for more, and Spark makes it of this
  public StructType schema() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ,
        TableCapability.BATCH_WRITE, TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    Map<String, String> given = options.asCaseSensitiveMap();
    if (PythonSource.isAskedFor(given) || PythonSource.isAskedFor(kept())
        || PythonSource.isAskedFor(schema)) {
      Table table = PythonSource.table(PythonSource.READING, schema, properties);
      return ((SupportsRead) table).newScanBuilder(options);
    }
    return new ChronicleScanBuilder(this, given);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Table table = PythonSource.table("writing", schema, properties);
    return ((SupportsWrite) table).newWriteBuilder(info);
  }

  /** Where its queues end for all who read it; null as long as no query has looked. */
  synchronized JsonNode ends() {
    return ends;
  }

  synchronized void endsAt(JsonNode found) {
    if (ends == null || ends.isNull()) ends = found;
  }

  /** The options that a table of the catalog keeps in its columns. */
  private Map<String, String> kept() {
    for (StructField each : schema.fields()) {
      if (!each.metadata().contains(KEPT)) continue;
      try {
        String text = each.metadata().getString(KEPT);
        return Planner.JSON.readValue(text,
            new com.fasterxml.jackson.core.type.TypeReference<Map<String, String>>() {});
      } catch (IOException error) {
        throw Fault.table("expected the options of a table in its columns, found other metadata");
      }
    }
    return Map.of();
  }
}
