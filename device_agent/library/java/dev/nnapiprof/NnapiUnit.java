package dev.nnapiprof;

import java.nio.charset.StandardCharsets;

/** A unit of a model, the smallest part that has a name, and who runs it. */
public final class NnapiUnit {
  /** "conv2d+relu6 3x3/2 32x112x112"; "" where the bundle does not say. */
  public final String name;
  public final int segment;
  /** An accelerator, "nnapi" for NNAPI's choice, or "cpu". */
  public final String device;
  /** Of the plan's predicted latency, 0 to 1; -1: the bundle does not say. */
  public final double share;
  /** Why its segment runs on the CPU instead of NNAPI; null: it does not. */
  public final String why;

  NnapiUnit(byte[] name, int segment, byte[] device, double share, byte[] why) {
    this.name = new String(name, StandardCharsets.UTF_8);
    this.segment = segment;
    this.device = new String(device, StandardCharsets.UTF_8);
    this.share = share;
    this.why = why == null ? null : new String(why, StandardCharsets.UTF_8);
  }
}
