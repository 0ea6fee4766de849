import dev.nnapiprof.NnapiModel;

import java.io.File;
import java.io.FileInputStream;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** What an app does: BUNDLE NNAPI INPUT OUTPUT; prints what the model is and what became of it. */
final class App {
  public static void main(String[] arguments) throws Exception {
    NnapiModel.Options options = new NnapiModel.Options();
    options.nnapiLibrary = arguments[1];
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
    try {
      NnapiModel.open(new File(arguments[2]));
    } catch (NnapiModel.Failure failure) {
      System.out.println("failed " + failure.status + " " + failure.getMessage());
    }
  }
}
