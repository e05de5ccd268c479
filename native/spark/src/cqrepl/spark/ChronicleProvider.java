package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Queues as tables of Spark: format("chronicle"). */
public final class ChronicleProvider implements TableProvider, DataSourceRegister {
  private static final String READING = "payload 'wire'";
  private JsonNode ends;
  private TableProvider python;

  @Override
  public String shortName() {
    return "chronicle";
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    if (PythonSource.isAskedFor(options)) {
      python = PythonSource.provider(READING);
      return python.inferSchema(options);
    }
    JsonNode answer = Planner.batch(Planner.request("schema", options, new StructType()));
    ends = answer.get("ends");
    StructType found = new StructType();
    for (JsonNode each : answer.get("fields")) {
      found = found.add(new StructField(each.get(0).asText(),
          DataType.fromDDL(each.get(1).asText()), false, Metadata.fromJson(each.get(2).toString())));
    }
    return found;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> given) {
    if (python != null) return python.getTable(schema, partitioning, given);
    return new ChronicleTable(schema, given, ends);
  }
}
