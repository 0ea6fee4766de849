import dev.nnapiprof.NnapiModel;
import dev.nnapiprof.NnapiUnit;

import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** What an app does: BUNDLE NNAPI INPUT OUTPUT CACHE AGENT PACKAGE; prints what the model is and what became of it. */
final class App {
  /** The number of an open file's descriptor, which Java does not tell. */
  private static int descriptor(String path) throws Exception {
    for (File link : new File("/proc/self/fd").listFiles()) {
      if (link.getCanonicalPath().equals(new File(path).getCanonicalPath())) {
        return Integer.parseInt(link.getName());
      }
    }
    throw new IllegalStateException(path + " is not open");
  }

  public static void main(String[] arguments) throws Exception {
    NnapiModel.Options options = new NnapiModel.Options();
    options.nnapiLibrary = arguments[1];
    options.cacheFolder = new File(arguments[4]);
    options.trial = true;
    options.trialHelper = new File(arguments[5]);
    options.log = message -> System.out.println("log " + message);
    ByteBuffer bytes =
        ByteBuffer.wrap(Files.readAllBytes(Paths.get(arguments[2]))).order(ByteOrder.LITTLE_ENDIAN);
    float[] image = new float[bytes.remaining() / 4];
    bytes.asFloatBuffer().get(image);
    NnapiModel model = NnapiModel.open(new FileInputStream(arguments[0]), options);
    for (NnapiModel.Tensor tensor : model.inputs()) {
      System.out.println("input " + tensor.name + " " + Arrays.toString(tensor.shape));
    }
    float[] scores = model.run(image)[0];
    try (NnapiModel mapped = NnapiModel.open(new File(arguments[0]), options)) {
      System.out.println("again " + Arrays.equals(scores, mapped.run(image)[0]));
      ByteBuffer memory = mapped.output(0);
      System.out.println("bytes " + memory.remaining() + " " + (mapped.lastNs() > 0));
      mapped.check();
    }
    try (FileInputStream asset = new FileInputStream(arguments[6])) {
      int file = descriptor(arguments[6]);
      options.trialHelper = new File("/nowhere/agent"); // the verdict is known by now
      long length = new File(arguments[0]).length();
      try (NnapiModel mapped = NnapiModel.open(file, 4, length, options)) {
        System.out.println("asset " + Arrays.equals(scores, mapped.run(image)[0]));
        double shares = 0;
        for (NnapiUnit unit : mapped.describe()) {
          System.out.println("unit " + unit.segment + " " + unit.device + " " + unit.why);
          shares += unit.share;
        }
        System.out.printf("shares %.3f%n%s%n", shares, mapped.describeLine());
      }
      options.nnapiLibrary = "/nowhere/libneuralnetworks.so";
      options.trial = false;
      try (NnapiModel elsewhere = NnapiModel.open(file, 4, length, options)) {
        System.out.println("why " + (elsewhere.describe().get(0).why != null));
      }
    }
    ByteBuffer written = ByteBuffer.allocate(4 * scores.length).order(ByteOrder.LITTLE_ENDIAN);
    written.asFloatBuffer().put(scores);
    Files.write(Paths.get(arguments[3]), written.array());
    for (String line : model.segments()) {
      System.out.println("segment " + line);
    }
    try {
      model.run(new float[1]);
    } catch (IllegalArgumentException error) {
      System.out.println("refused " + error.getMessage());
    }
    model.close();
    model.close();
    try {
      model.run();
    } catch (IllegalStateException error) {
      System.out.println("refused " + error.getMessage());
    }
    byte[] bundle = Files.readAllBytes(Paths.get(arguments[0]));
    bundle[bundle.length - 8] ^= 1; // of the weights, which are last
    try (NnapiModel changed = NnapiModel.open(new ByteArrayInputStream(bundle))) {
      changed.check();
    } catch (NnapiModel.Failure failure) {
      System.out.println("changed " + failure.status);
    }
    try {
      NnapiModel.open(new File(arguments[2]));
    } catch (NnapiModel.Failure failure) {
      System.out.println("failed " + failure.status + " " + failure.getMessage());
    }
  }
}
