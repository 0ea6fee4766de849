package dev.nnapiprof;

import android.content.res.AssetFileDescriptor;
import java.io.Closeable;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/**
 * A model cut into segments, each on the NNAPI accelerator or on the CPU where it was fastest when
 * it was measured: a bundle of nnapi-prof, compiled for this phone.
 *
 * <pre>
 * try (NnapiModel model = NnapiModel.open(context.getAssets().openFd("net.nnprt"))) {
 *   float[] scores = model.run(image)[0];
 * }
 * </pre>
 *
 * Compile once, off the main thread: drivers take seconds. One thread at a time is let in.
 */
public final class NnapiModel implements Closeable {
  /** How a bundle is compiled; what is left alone is as it was measured. */
  public static final class Options {
    /** Of the bundle's plans, for comparison; -1: the one that is best on this phone. */
    public int plan = -1;
    /** Of the CPU's segments; 0: as measured. */
    public int threads = 0;
    /** Bits of the CPUs that the CPU's segments and this call keep to; 0: as measured. */
    public long cpuMask = 0;
    /** Whether a segment that NNAPI cannot run on this phone runs on the CPU. */
    public boolean cpuFallback = true;
    /** Whether mode and cores are those of the measurements, where nothing else is said here. */
    public boolean asMeasured = true;
    /** NNAPI's burst executions (Android 10), or asynchronous ones; not both. */
    public boolean burst = false;
    public boolean async = false;
    /** Whether NNAPI gets addresses instead of shared memory. */
    public boolean pointers = false;
    /** Whether NNAPI is asked what runs took in its driver. */
    public boolean durations = false;
    /** NNAPI's library; null: the phone's own. */
    public String nnapiLibrary = null;
    /** A folder that can be written, for phones without other shared memory; null: none. */
    public File folder = null;
    /** Where drivers and trials keep their results for the next start, context.getCacheDir() say;
     * null: nowhere, and drivers compile at each start. */
    public File cacheFolder = null;
    /** The longest that NNAPI may compile, or run, a segment before the CPU does; 0: any time. */
    public long compileLimitMs = 10_000;
    public long runLimitMs = 2_000;
    /** NNAPI's priority: 90 low, 100 medium, 110 high; 0: its own (Android 11). */
    public int priority = 0;
    /** Whether NNAPI's segments are tried in another process first, which needs one of the next
     * two; the verdict is kept in the cache folder. */
    public boolean trial = false;
    /** In an app: {@code new NnapiTrial(context)}. */
    public NnapiTrialStarter trialStarter = null;
    /** Elsewhere: the file of nnapi-prof's agent. */
    public File trialHelper = null;
    /** Is told what falls back; null: nobody. */
    public Log log = null;

    int flags() {
      return (burst ? 1 : 0) | (async ? 2 : 0) | (pointers ? 4 : 0) | (cpuFallback ? 8 : 0)
          | (durations ? 16 : 0) | (asMeasured ? 32 : 0) | (trial ? 64 : 0);
    }

    byte[][] texts() {
      return new byte[][] {text(nnapiLibrary), text(path(folder)), text(path(cacheFolder)),
          text(path(trialHelper))};
    }

    long[] numbers() {
      return new long[] {plan, flags(), threads, cpuMask, 1_000_000 * compileLimitMs,
          1_000_000 * runLimitMs, priority};
    }

    private static String path(File file) {
      return file == null ? null : file.getPath();
    }
  }

  /** Is told by the thread that compiles or runs, and must not call the model. */
  public interface Log {
    void tell(String message);
  }

  /** An input or output. */
  public static final class Tensor {
    public static final int FLOAT32 = 3;
    public static final int INT32 = 4;
    public static final int QUANT8 = 5;
    public static final int BOOL8 = 6;
    public static final int FLOAT16 = 8;
    public static final int QUANT8_SIGNED = 14;

    public final String name;
    /** One of the constants above, which are NNAPI's. */
    public final int type;
    /** In the order of the PyTorch model: an image is [n, channels, height, width]. */
    public final int[] shape;
    /** Quantised: a value is (integer - zeroPoint) * scale. */
    public final float scale;
    public final int zeroPoint;

    final TensorLayout layout;

    Tensor(String name, float scale, int[] facts) {
      this.name = name;
      this.scale = scale;
      type = facts[0];
      zeroPoint = facts[1];
      int rank = facts[2];
      int[] order = Arrays.copyOfRange(facts, 3 + rank, 3 + 2 * rank);
      shape = new int[rank];
      for (int i = 0; i < rank; i++) {
        shape[order[i]] = facts[3 + i];
      }
      layout = new TensorLayout(this, order);
    }

    /** How many values it has. */
    public int size() {
      int product = 1;
      for (int n : shape) {
        product *= n;
      }
      return product;
    }
  }

  /** A bundle that cannot be opened or compiled, or a run that failed. */
  public static final class Failure extends RuntimeException {
    private static final long serialVersionUID = 1;
    /** nnp_status of nnapi_prof_runtime.h. */
    public final int status;
    /** The segment that it happened in, -1: in none. */
    public final int segment;
    /** NNAPI's result code, 0 where it is not NNAPI's failure. */
    public final int nnapiCode;

    Failure(byte[] message, int status, int segment, int nnapiCode) {
      super(new String(message, StandardCharsets.UTF_8));
      this.status = status;
      this.segment = segment;
      this.nnapiCode = nnapiCode;
    }
  }

  static {
    System.loadLibrary("nnapi_prof_jni");
  }

  private final List<Tensor> inputs;
  private final List<Tensor> outputs;
  private long handle;

  private NnapiModel(long handle) {
    this.handle = handle;
    inputs = tensors(false);
    outputs = tensors(true);
  }

  /** Opens and compiles a bundle from a file, which stays mapped into memory. */
  public static NnapiModel open(File bundle) {
    return open(bundle, new Options());
  }

  public static NnapiModel open(File bundle, Options options) {
    return new NnapiModel(compile(text(bundle.getPath()), 0, null, options));
  }

  /** Opens and compiles an app's asset, which is mapped in place if it is not compressed
   * ({@code noCompress += "nnprt"}), and closes the descriptor. */
  public static NnapiModel open(AssetFileDescriptor asset, Options options) throws IOException {
    try (AssetFileDescriptor closed = asset) {
      int file = closed.getParcelFileDescriptor().getFd();
      return open(file, closed.getStartOffset(), closed.getLength(), options);
    }
  }

  public static NnapiModel open(AssetFileDescriptor asset) throws IOException {
    return open(asset, new Options());
  }

  /** The same of a part of a file, from a multiple of 4; the descriptor stays the caller's. */
  public static NnapiModel open(int file, long offset, long length, Options options) {
    return new NnapiModel(compile(null, 0, new long[] {file, offset, length}, options));
  }

  /** Opens and compiles a bundle from a stream, a compressed asset say, and closes it. The bundle is
   * copied into memory outside of Java's heap. */
  public static NnapiModel open(InputStream bundle) throws IOException {
    return open(bundle, new Options());
  }

  public static NnapiModel open(InputStream bundle, Options options) throws IOException {
    long content = 0;
    try (InputStream stream = bundle) {
      byte[] chunk = new byte[1 << 16];
      for (int n; (n = stream.read(chunk)) >= 0; ) {
        content = nativeCollect(content, chunk, n);
      }
    } catch (IOException error) {
      nativeDiscard(content);
      throw error;
    }
    return new NnapiModel(compile(null, content, null, options));
  }

  private static long compile(byte[] path, long content, long[] part, Options options) {
    try {
      return nativeOpen(path, content, part, options.texts(), options.numbers(), options.log,
          options.trialStarter);
    } finally {
      if (options.trialStarter != null) {
        options.trialStarter.end();
      }
    }
  }

  /** What the process of a trial does with the descriptors that it was handed; it may end here. */
  public static void serveTrial(int[] files) {
    nativeServe(files);
  }

  public List<Tensor> inputs() {
    return inputs;
  }

  public List<Tensor> outputs() {
    return outputs;
  }

  /**
   * Runs once, with values in the order of the PyTorch model's shapes.
   *
   * @param values one array for each input
   * @return one array for each output
   */
  public synchronized float[][] run(float[]... values) {
    if (values.length != inputs.size()) {
      throw new IllegalArgumentException(
          "the model has " + inputs.size() + " inputs: there are " + values.length + " arrays");
    }
    for (int i = 0; i < values.length; i++) {
      inputs.get(i).layout.write(values[i], input(i));
    }
    run();
    float[][] results = new float[outputs.size()][];
    for (int i = 0; i < results.length; i++) {
      results[i] = outputs.get(i).layout.read(output(i));
    }
    return results;
  }

  /** The model's own memory of an input, as it lies there; not to be used after close(). */
  public synchronized ByteBuffer input(int index) {
    return nativeBuffer(handle(), false, index).order(ByteOrder.nativeOrder());
  }

  /** The model's own memory of an output; not to be used after close(). */
  public synchronized ByteBuffer output(int index) {
    return nativeBuffer(handle(), true, index).order(ByteOrder.nativeOrder());
  }

  /** Runs once, from what the buffers of the inputs hold to those of the outputs. */
  public synchronized void run() {
    nativeRun(handle());
  }

  /** Reads all weights and compares their checksum, which opening does not: for a bundle that was
   * downloaded. Throws Failure where they changed. */
  public synchronized void check() {
    nativeCheck(handle());
  }

  /** Of the last run, in ns; -1 before one. */
  public synchronized long lastNs() {
    return nativeLastNs(handle());
  }

  /** What became of each segment, a line for each: where it runs, and why not where planned. */
  public synchronized List<String> segments() {
    List<String> lines = new ArrayList<>();
    for (int i = 0, n = nativeSegments(handle()); i < n; i++) {
      lines.add(string(nativeSegment(handle, i)));
    }
    return lines;
  }

  /** Each unit as it runs now: its device, its share of the predicted latency, and why not where
   * planned. */
  public synchronized List<NnapiUnit> describe() {
    return Collections.unmodifiableList(Arrays.asList(nativeUnits(handle())));
  }

  /** The same as one line for a log: devices with their segments and shares, then what fell back. */
  public synchronized String describeLine() {
    return string(nativeLine(handle()));
  }

  /** Frees everything; a second call does nothing. */
  @Override
  public synchronized void close() {
    if (handle != 0) {
      nativeClose(handle);
    }
    handle = 0;
  }

  private long handle() {
    if (handle == 0) {
      throw new IllegalStateException("this model is closed");
    }
    return handle;
  }

  private List<Tensor> tensors(boolean ofOutputs) {
    List<Tensor> all = new ArrayList<>();
    for (int i = 0, n = nativeTensors(handle, ofOutputs); i < n; i++) {
      String name = string(nativeName(handle, ofOutputs, i));
      all.add(new Tensor(name, nativeScale(handle, ofOutputs, i), nativeFacts(handle, ofOutputs, i)));
    }
    return Collections.unmodifiableList(all);
  }

  /** For C: UTF-8 with a zero behind it. */
  private static byte[] text(String string) {
    return string == null ? null : (string + "\0").getBytes(StandardCharsets.UTF_8);
  }

  /** For C. */
  private static void tell(Log log, byte[] message) {
    log.tell(string(message));
  }

  private static String string(byte[] text) {
    return text == null ? null : new String(text, StandardCharsets.UTF_8);
  }

  private static native long nativeCollect(long content, byte[] chunk, int size);

  private static native void nativeDiscard(long content);

  private static native long nativeOpen(byte[] path, long content, long[] part, byte[][] texts,
      long[] numbers, Log log, NnapiTrialStarter starter);

  private static native void nativeServe(int[] files);

  private static native NnapiUnit[] nativeUnits(long handle);

  private static native byte[] nativeLine(long handle);

  private static native void nativeClose(long handle);

  private static native int nativeTensors(long handle, boolean ofOutputs);

  private static native byte[] nativeName(long handle, boolean ofOutputs, int index);

  private static native float nativeScale(long handle, boolean ofOutputs, int index);

  private static native int[] nativeFacts(long handle, boolean ofOutputs, int index);

  private static native ByteBuffer nativeBuffer(long handle, boolean ofOutputs, int index);

  private static native void nativeRun(long handle);

  private static native void nativeCheck(long handle);

  private static native long nativeLastNs(long handle);

  private static native int nativeSegments(long handle);

  private static native byte[] nativeSegment(long handle, int index);
}
