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
      python = PythonSource.provider(PythonSource.READING);
      return python.inferSchema(options);
    }
    JsonNode answer = Planner.batch(Planner.request("schema", options, new StructType()));
    if (answer.has("typed")) {
      if (PythonSource.isNative()) {
        throw Fault.table("option schema: expected CQREPL_SPARK_SCAN=auto, as the source in Python"
            + " reads fields, or schema=none; found native");
      }
      python = PythonSource.provider(PythonSource.READING);
      return python.inferSchema(options);
    }
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
