import dev.nnapiprof.NnapiModel;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;

/** BUNDLE NNAPI INPUT RUNS: runs RUNS times for each input line; prints their ns as one line. */
final class Door {
  public static void main(String[] arguments) throws Exception {
    NnapiModel.Options options = new NnapiModel.Options();
    options.nnapiLibrary = arguments[1];
    byte[] input = Files.readAllBytes(Paths.get(arguments[2]));
    int runs = Integer.parseInt(arguments[3]);
    try (NnapiModel model = NnapiModel.open(new File(arguments[0]), options)) {
      ByteBuffer in = model.input(0);
      ByteBuffer out = model.output(0);
      byte[] output = new byte[out.remaining()];
      BufferedReader turns = new BufferedReader(new InputStreamReader(System.in));
      while (turns.readLine() != null) {
        StringBuilder line = new StringBuilder("[");
        for (int i = -runs / 4; i < runs; i++) {
          long start = System.nanoTime();
          in.rewind();
          in.put(input);
          model.run();
          out.rewind();
          out.get(output);
          long ns = System.nanoTime() - start;
          if (i >= 0) {
            line.append(i == 0 ? "" : ",").append(ns);
          }
        }
        System.out.println(line.append("]"));
        System.out.flush();
      }
    }
  }
}
