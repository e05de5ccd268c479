package cqrepl.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/** Excerpts of one store file without a gap, with places in it that the driver has checked. */
final class Piece implements Serializable {
  private static final long serialVersionUID = 1;
  static final long ANY = Long.MAX_VALUE;
  final String queue;
  final String directory;
  final String file;
  final int cycle;
  final long startMicros;
  final long indexFirst;
  final long sequenceFirst;
  final long count;
  final int alignment;
  /** Every so many excerpts one has a slot in an index page; 0: none has. */
  final long spacing;
  final long slotCount;
  /** The positions of the first slots of the pages that these excerpts are in; -1: no such page. */
  final long[] slots;
  /** The number of the first of these pages. */
  final long pageFirst;
  final long beginSequence;
  final long beginPosition;
  /** Of the header of the last excerpt; -1: it is gone already. */
  final long lastPosition;

  Piece(JsonNode told) {
    queue = told.get("queue").asText();
    directory = told.get("directory").asText();
    file = told.get("file").asText();
    cycle = told.get("cycle").asInt();
    startMicros = told.get("startMicros").asLong();
    indexFirst = told.get("indexFirst").asLong();
    sequenceFirst = told.get("sequenceFirst").asLong();
    count = told.get("count").asLong();
    alignment = told.get("alignment").asInt();
    spacing = told.get("spacing").asLong();
    slotCount = told.get("slotCount").asLong();
    slots = new long[told.get("slots").size()];
    for (int i = 0; i < slots.length; i++) slots[i] = told.get("slots").get(i).asLong();
    pageFirst = told.get("pageFirst").asLong();
    beginSequence = told.get("beginSequence").asLong();
    beginPosition = told.get("beginPosition").asLong();
    lastPosition = told.get("lastPosition").asLong();
  }

  private Piece(Piece of, long index) {
    queue = of.queue;
    directory = of.directory;
    file = of.file;
    cycle = of.cycle;
    startMicros = of.startMicros;
    indexFirst = index;
    sequenceFirst = of.sequenceFirst + index - of.indexFirst;
    count = 1;
    alignment = of.alignment;
    spacing = of.spacing;
    slotCount = of.slotCount;
    slots = of.slots;
    pageFirst = of.pageFirst;
    boolean isLast = index == of.indexFirst + of.count - 1;
    beginSequence = isLast && of.lastPosition > 0 ? sequenceFirst : of.beginSequence;
    beginPosition = isLast && of.lastPosition > 0 ? of.lastPosition : of.beginPosition;
    lastPosition = isLast ? of.lastPosition : ANY;
  }

  /** The first or the last excerpt alone. */
  Piece only(long index) {
    return new Piece(this, index);
  }

  String path() {
    return directory + "/" + file;
  }
}
