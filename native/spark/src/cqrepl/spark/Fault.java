package cqrepl.spark;

import org.apache.spark.SparkThrowable;

/** What is wrong, in one line: the class of the error as Python names it, and its text. No stack. */
public final class Fault extends IllegalArgumentException implements SparkThrowable {
  private static final long serialVersionUID = 1;
  private static final String DAMAGED = "cqrepl.queue.format.errors.QueueDamaged";
  private static final String OTHER = "cqrepl.queue.format.errors.QueueError";
  private static final String GONE = "cqrepl.queue.format.errors.IndexGap";
  private static final String OPTION = "cqrepl.spark.tableoptions.TableError";

  public Fault(String line) {
    super(line);
  }

  static Fault damaged(String path, String reason, long position) {
    return new Fault(DAMAGED + ": " + path + ": " + reason + " at position " + position);
  }

  static Fault otherQueue(String directory, String what) {
    return new Fault(OTHER + ": " + directory
        + ": expected the queue that the driver reads, found another one at the same path: " + what);
  }

  static Fault gone(String directory, long index, String reason) {
    return new Fault(GONE + ": " + directory + ": expected index 0x" + Long.toHexString(index)
        + ", found none: " + reason);
  }

  static Fault table(String text) {
    return new Fault(OPTION + ": " + text);
  }

  /** Spark passes an error with a condition on as it is, without its own stack around it. */
  @Override
  public String getCondition() {
    return "CHRONICLE_QUEUE";
  }

  @Override
  public String getSqlState() {
    return "XX000";
  }

  /** True where an excerpt is not there any more. */
  boolean isGone() {
    return getMessage().startsWith(GONE);
  }

  /** The line says all; a stack of Java would only hide it. */
  @Override
  public synchronized Throwable fillInStackTrace() {
    return this;
  }
}
