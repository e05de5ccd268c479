package cqrepl.spark;

import java.nio.ByteBuffer;

/** BLAKE2b without a key (RFC 7693), of 16 bytes: the column hash, and digests of excerpts. */
final class Blake2b {
  static final int BYTES = 16;
  private static final int BLOCK = 128;
  private static final long[] IV = {
    0x6a09e667f3bcc908L, 0xbb67ae8584caa73bL, 0x3c6ef372fe94f82bL, 0xa54ff53a5f1d36f1L,
    0x510e527fade682d1L, 0x9b05688c2b3e6c1fL, 0x1f83d9abfb41bd6bL, 0x5be0cd19137e2179L
  };
  private static final byte[][] SIGMA = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}
  };

  private final long[] state = new long[8];
  private final long[] work = new long[16];
  private final long[] words = new long[16];
  private final byte[] last = new byte[BLOCK];

  /** The digest of some bytes of a little-endian buffer, whose position stays. */
  byte[] digest(ByteBuffer data, int start, int length) {
    System.arraycopy(IV, 0, state, 0, 8);
    state[0] ^= 0x01010000 ^ BYTES;
    int done = 0;
    for (; length - done > BLOCK; done += BLOCK) {
      for (int i = 0; i < 16; i++) words[i] = data.getLong(start + done + 8 * i);
      compress(done + BLOCK, false);
    }
    java.util.Arrays.fill(last, (byte) 0);
    data.get(start + done, last, 0, length - done);
    ByteBuffer rest = ByteBuffer.wrap(last).order(java.nio.ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < 16; i++) words[i] = rest.getLong(8 * i);
    compress(length, true);
    ByteBuffer out = ByteBuffer.allocate(BYTES).order(java.nio.ByteOrder.LITTLE_ENDIAN);
    return out.putLong(state[0]).putLong(state[1]).array();
  }

  private void compress(long count, boolean isLast) {
    System.arraycopy(state, 0, work, 0, 8);
    System.arraycopy(IV, 0, work, 8, 8);
    work[12] ^= count;
    if (isLast) work[14] = ~work[14];
    for (int round = 0; round < 12; round++) {
      byte[] order = SIGMA[round % 10];
      for (int i = 0; i < 4; i++) {
        mix(i, 4 + i, 8 + i, 12 + i, words[order[2 * i]], words[order[2 * i + 1]]);
      }
      for (int i = 0; i < 4; i++) {
        mix(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4,
            words[order[8 + 2 * i]], words[order[9 + 2 * i]]);
      }
    }
    for (int i = 0; i < 8; i++) state[i] ^= work[i] ^ work[i + 8];
  }

  private void mix(int a, int b, int c, int d, long x, long y) {
    work[a] += work[b] + x;
    work[d] = Long.rotateRight(work[d] ^ work[a], 32);
    work[c] += work[d];
    work[b] = Long.rotateRight(work[b] ^ work[c], 24);
    work[a] += work[b] + y;
    work[d] = Long.rotateRight(work[d] ^ work[a], 16);
    work[c] += work[d];
    work[b] = Long.rotateRight(work[b] ^ work[c], 63);
  }
}
