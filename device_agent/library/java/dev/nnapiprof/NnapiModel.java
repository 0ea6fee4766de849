package dev.nnapiprof;

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
 * try (NnapiModel model = NnapiModel.open(context.getAssets().open("net.nnprt"))) {
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
    /** Whether a segment that NNAPI cannot run on this phone runs on the CPU. */
    public boolean cpuFallback = true;
    /** NNAPI's library; null: the phone's own. */
    public String nnapiLibrary = null;
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
    /** Which axis of {@link #shape} each axis in memory is, the outermost first. */
    final int[] order;

    Tensor(String name, float scale, int[] facts) {
      this.name = name;
      this.scale = scale;
      type = facts[0];
      zeroPoint = facts[1];
      int rank = facts[2];
      order = Arrays.copyOfRange(facts, 3 + rank, 3 + 2 * rank);
      shape = new int[rank];
      for (int i = 0; i < rank; i++) {
        shape[order[i]] = facts[3 + i];
      }
    }

    /** How many values it has. */
    public int size() {
      int product = 1;
      for (int n : shape) {
        product *= n;
      }
      return product;
    }

    /** Where in memory each value lies, values in the order of {@link #shape}. */
    private int[] places() {
      int rank = shape.length;
      int[] strides = new int[rank];
      for (int i = rank - 1, stride = 1; i >= 0; i--) {
        strides[order[i]] = stride;
        stride *= shape[order[i]];
      }
      int[] places = new int[size()];
      int[] index = new int[rank];
      for (int at = 0, place = 0; at < places.length; at++) {
        places[at] = place;
        for (int axis = rank - 1; axis >= 0; axis--) {
          place += strides[axis];
          if (++index[axis] < shape[axis]) {
            break;
          }
          place -= strides[axis] * shape[axis];
          index[axis] = 0;
        }
      }
      return places;
    }

    void write(float[] values, ByteBuffer memory) {
      if (values.length != size()) {
        throw new IllegalArgumentException(
            "\"" + name + "\" takes " + size() + " values, of the shape " + Arrays.toString(shape)
                + ": there are " + values.length);
      }
      int[] places = places();
      for (int i = 0; i < values.length; i++) {
        switch (type) {
          case FLOAT32: memory.putFloat(4 * places[i], values[i]); break;
          case INT32: memory.putInt(4 * places[i], Math.round(values[i])); break;
          case BOOL8: memory.put(places[i], (byte) (values[i] != 0 ? 1 : 0)); break;
          case QUANT8: memory.put(places[i], quantised(values[i], 0, 255)); break;
          case QUANT8_SIGNED: memory.put(places[i], quantised(values[i], -128, 127)); break;
          default: throw noNumbers();
        }
      }
    }

    float[] read(ByteBuffer memory) {
      float[] values = new float[size()];
      int[] places = places();
      for (int i = 0; i < values.length; i++) {
        int at = places[i];
        switch (type) {
          case FLOAT32: values[i] = memory.getFloat(4 * at); break;
          case INT32: values[i] = memory.getInt(4 * at); break;
          case BOOL8: values[i] = memory.get(at); break;
          case QUANT8: values[i] = ((memory.get(at) & 0xff) - zeroPoint) * scale; break;
          case QUANT8_SIGNED: values[i] = (memory.get(at) - zeroPoint) * scale; break;
          default: throw noNumbers();
        }
      }
      return values;
    }

    private byte quantised(float value, int least, int most) {
      double integer = Math.rint(value / scale) + zeroPoint;
      return (byte) (int) Math.max(least, Math.min(most, integer));
    }

    private UnsupportedOperationException noNumbers() {
      return new UnsupportedOperationException(
          "\"" + name + "\" has elements of NNAPI's type " + type
              + ", which are no float here: use the buffers, input() and output()");
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
    return new NnapiModel(compile(text(bundle.getPath()), null, 0, options));
  }

  /** Opens and compiles a bundle from a stream, an app's asset say, and closes it. */
  public static NnapiModel open(InputStream bundle) throws IOException {
    return open(bundle, new Options());
  }

  public static NnapiModel open(InputStream bundle, Options options) throws IOException {
    byte[] content = new byte[1 << 16];
    int size = 0;
    try (InputStream stream = bundle) {
      for (int n; (n = stream.read(content, size, content.length - size)) >= 0; ) {
        size += n;
        if (size == content.length) {
          content = Arrays.copyOf(content, 2 * size);
        }
      }
    }
    return new NnapiModel(compile(null, content, size, options));
  }

  private static long compile(byte[] path, byte[] content, int size, Options options) {
    return nativeOpen(path, content, size, options.plan, options.threads, options.cpuFallback,
        options.nnapiLibrary == null ? null : text(options.nnapiLibrary));
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
      inputs.get(i).write(values[i], input(i));
    }
    run();
    float[][] results = new float[outputs.size()][];
    for (int i = 0; i < results.length; i++) {
      results[i] = outputs.get(i).read(output(i));
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

  /** Of the last run, in ns; -1 before one. */
  public synchronized long lastNs() {
    return nativeLastNs(handle());
  }

  /** What became of each segment, a line for each: where it runs, and why not where planned. */
  public synchronized List<String> segments() {
    List<String> lines = new ArrayList<>();
    for (int i = 0, n = nativeSegments(handle()); i < n; i++) {
      lines.add(new String(nativeSegment(handle, i), StandardCharsets.UTF_8));
    }
    return lines;
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
      String name = new String(nativeName(handle, ofOutputs, i), StandardCharsets.UTF_8);
      all.add(new Tensor(name, nativeScale(handle, ofOutputs, i), nativeFacts(handle, ofOutputs, i)));
    }
    return Collections.unmodifiableList(all);
  }

  /** For C: UTF-8 with a zero behind it. */
  private static byte[] text(String string) {
    return (string + "\0").getBytes(StandardCharsets.UTF_8);
  }

  private static native long nativeOpen(byte[] path, byte[] content, int size, int plan,
      int threads, boolean cpuFallback, byte[] nnapiLibrary);

  private static native void nativeClose(long handle);

  private static native int nativeTensors(long handle, boolean ofOutputs);

  private static native byte[] nativeName(long handle, boolean ofOutputs, int index);

  private static native float nativeScale(long handle, boolean ofOutputs, int index);

  private static native int[] nativeFacts(long handle, boolean ofOutputs, int index);

  private static native ByteBuffer nativeBuffer(long handle, boolean ofOutputs, int index);

  private static native void nativeRun(long handle);

  private static native long nativeLastNs(long handle);

  private static native int nativeSegments(long handle);

  private static native byte[] nativeSegment(long handle, int index);
}
