package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** A stream over queues. Its offsets are those of the source in Python, text for text. */
final class ChronicleStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private static final String LIMITS = "limits";
  private final StructType columns;
  private final ObjectNode begin;
  private Planner planner;
  private JsonNode begun;

  ChronicleStream(Map<String, String> options, StructType all, StructType columns) {
    this.columns = columns;
    begin = Planner.request("stream", options, all);
  }

  /** Begins when Spark asks for the first offset: what is wrong is told by the query. */
  private synchronized JsonNode begun() {
    if (begun == null) {
      planner = new Planner();
      begun = planner.ask(begin);
    }
    return begun;
  }

  private JsonNode ask(ObjectNode request) {
    begun();
    return planner.ask(request);
  }

  @Override
  public Offset initialOffset() {
    return offset(ask(Planner.request("initial")));
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with a limit");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    ObjectNode request = Planner.request("latest").put("start", start.json());
    return offset(ask(request.put("all", limit instanceof ReadAllAvailable)));
  }

  @Override
  public Offset reportLatestOffset() {
    return offset(ask(Planner.request("report")));
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    ask(Planner.request("available"));
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    JsonNode limits = begun().get(LIMITS);
    if (!limits.get(0).isNull()) return ReadLimit.maxRows(limits.get(0).asLong());
    if (!limits.get(1).isNull()) return ReadLimit.maxBytes(limits.get(1).asLong());
    if (!limits.get(2).isNull()) return ReadLimit.maxFiles(limits.get(2).asInt());
    if (!limits.get(3).isNull()) return ReadLimit.maxRows(Long.MAX_VALUE); // none, but it may wait
    return ReadLimit.allAvailable();
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    ObjectNode request = Planner.request("between").put("start", start.json());
    return Split.all(ask(request.put("end", end.json())).get("tasks"));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    boolean mayBeLost = begun().get("mayBeLost").asBoolean();
    return new SplitReaderFactory(columns, begun().get("payload").asText().equals("text"), mayBeLost);
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new Text(json);
  }

  @Override
  public void commit(Offset end) {
    ask(Planner.request("commit").put("end", end.json()));
  }

  @Override
  @SuppressWarnings("deprecation") // its successor is not in Spark 4.2
  public Map<String, String> metrics(Optional<Offset> latest) {
    Map<String, String> found = new HashMap<>();
    if (latest.isEmpty() || planner == null) return found;
    JsonNode told = ask(Planner.request("metrics").put("at", latest.get().json())).get("metrics");
    told.fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
    return found;
  }

  @Override
  public synchronized void stop() {
    if (planner != null) planner.close();
  }

  private static Offset offset(JsonNode answer) {
    return new Text(answer.get("offset").asText());
  }

  /** An offset as it stands in a checkpoint. */
  private static final class Text extends Offset {
    private final String json;

    Text(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }
}
