package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import org.apache.spark.sql.connector.read.InputPartition;

/** What one task reads: pieces in their order, and what tells their queues. */
final class Split implements InputPartition {
  private static final long serialVersionUID = 1;
  final ArrayList<Piece> pieces = new ArrayList<>();
  final HashMap<String, Witness> witnesses = new HashMap<>();

  private Split(JsonNode told) {
    for (JsonNode each : told.get("pieces")) pieces.add(new Piece(each));
    for (JsonNode each : told.get("witnesses")) {
      Witness witness = new Witness(each);
      witnesses.put(witness.directory, witness);
    }
  }

  static InputPartition[] all(JsonNode tasks) {
    InputPartition[] found = new InputPartition[tasks.size()];
    for (int i = 0; i < found.length; i++) found[i] = new Split(tasks.get(i));
    return found;
  }
}
