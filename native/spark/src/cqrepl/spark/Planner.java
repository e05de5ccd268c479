package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The process of Python that plans (cqrepl.spark.scanserver): one for batches, one for a stream. */
final class Planner implements Closeable {
  static final ObjectMapper JSON = new ObjectMapper();
  private static final Logger LOGGER = LoggerFactory.getLogger(Planner.class);
  private static final String PYTHON = "cqrepl.spark.python";
  private static final String PATH = "cqrepl.spark.pythonpath";
  private static final String KEEPS_TABLES = "cqrepl.spark.keepstables";
  private static Planner ofBatches;

  private final Process process;
  private final BufferedWriter requests;
  private final BufferedReader answers;

  Planner() {
    String python = python();
    ProcessBuilder builder = new ProcessBuilder(python, "-P", "-m", "cqrepl.spark.scanserver");
    String path = System.getProperty(PATH, "");
    if (!path.isEmpty()) {
      String before = builder.environment().getOrDefault("PYTHONPATH", "");
      builder.environment().put("PYTHONPATH", before.isEmpty() ? path : before + ":" + path);
    }
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      process = builder.start();
    } catch (IOException error) {
      throw Fault.table("expected a Python with cqrepl to plan with, found none at " + python);
    }
    requests = new BufferedWriter(
        new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8));
    answers = new BufferedReader(
        new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
  }

  private static String python() {
    String told = System.getProperty(PYTHON);
    SparkEnv env = SparkEnv.get();
    if (told == null && env != null) told = env.conf().get("spark.pyspark.python", null);
    if (told == null) told = System.getenv("PYSPARK_PYTHON");
    return told == null ? "python3" : told;
  }

  /** The answer to a question about batches. */
  static JsonNode batch(ObjectNode request) {
    synchronized (Planner.class) {
      if (ofBatches == null || !ofBatches.process.isAlive()) ofBatches = new Planner();
      return ofBatches.ask(request);
    }
  }

  /** The answer to a question, which may be an error. */
  synchronized JsonNode ask(ObjectNode request) {
    String line;
    try {
      requests.write(JSON.writeValueAsString(request));
      requests.newLine();
      requests.flush();
      line = answers.readLine();
    } catch (IOException error) {
      line = null;
    }
    if (line == null) {
      process.destroyForcibly();
      throw Fault.table("expected " + python() + " to import cqrepl and to plan, it has ended;"
          + " what it said is in the log: is cqrepl installed for it?");
    }
    try {
      JsonNode answer = JSON.readTree(line);
      if (answer.has("error")) throw new Fault(answer.get("error").asText());
      for (JsonNode said : answer.path("said")) LOGGER.warn("{}", said.asText());
      return answer;
    } catch (IOException error) {
      throw new IllegalStateException("no answer of a planner: " + line, error);
    }
  }

  static ObjectNode request(String ask) {
    return JSON.createObjectNode().put("ask", ask)
        .put("keepsTables", Boolean.getBoolean(KEEPS_TABLES));
  }

  /** A request with the options of a table, and the columns of it that were planned. */
  static ObjectNode request(String ask, Map<String, String> options, StructType columns) {
    ObjectNode request = request(ask);
    ObjectNode given = request.putObject("options");
    new CaseInsensitiveStringMap(options).forEach(given::put);
    ArrayNode fields = request.putArray("fields");
    for (StructField each : columns.fields()) {
      ArrayNode field = fields.addArray().add(each.name()).add(each.dataType().simpleString());
      field.add(each.nullable());
      try {
        field.add(JSON.readTree(each.metadata().json()));
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }
    return request;
  }

  @Override
  public void close() {
    try {
      requests.close();
    } catch (IOException error) {
      process.destroy();
    }
  }
}
