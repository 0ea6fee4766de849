package dev.nnapiprof;

import dev.nnapiprof.NnapiModel.Tensor;
import java.nio.ByteBuffer;
import java.util.Arrays;

/** Where a tensor's values lie in memory, and how: made once for a model. */
final class TensorLayout {
  private final Tensor tensor;
  private final int size;
  /** Where in memory each value lies, values in the order of the shape; null: in that order. */
  private final int[] places;

  /** Axis i in memory, the outermost first, is the shape's axis order[i]. */
  TensorLayout(Tensor tensor, int[] order) {
    this.tensor = tensor;
    size = tensor.size();
    boolean isInOrder = true;
    for (int i = 0; i < order.length; i++) {
      isInOrder &= order[i] == i;
    }
    places = isInOrder ? null : places(tensor.shape, order, size);
  }

  private static int[] places(int[] shape, int[] order, int size) {
    int rank = shape.length;
    int[] strides = new int[rank];
    for (int i = rank - 1, stride = 1; i >= 0; i--) {
      strides[order[i]] = stride;
      stride *= shape[order[i]];
    }
    int[] places = new int[size];
    int[] index = new int[rank];
    for (int at = 0, place = 0; at < size; at++) {
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

  private int place(int i) {
    return places == null ? i : places[i];
  }

  void write(float[] values, ByteBuffer memory) {
    if (values.length != size) {
      throw new IllegalArgumentException(
          "\"" + tensor.name + "\" takes " + size + " values, of the shape "
              + Arrays.toString(tensor.shape) + ": there are " + values.length);
    }
    if (tensor.type == Tensor.FLOAT32 && places == null) {
      memory.asFloatBuffer().put(values);
      return;
    }
    for (int i = 0; i < size; i++) {
      int at = place(i);
      switch (tensor.type) {
        case Tensor.FLOAT32: memory.putFloat(4 * at, values[i]); break;
        case Tensor.INT32: memory.putInt(4 * at, Math.round(values[i])); break;
        case Tensor.BOOL8: memory.put(at, (byte) (values[i] != 0 ? 1 : 0)); break;
        case Tensor.QUANT8: memory.put(at, quantised(values[i], 0, 255)); break;
        case Tensor.QUANT8_SIGNED: memory.put(at, quantised(values[i], -128, 127)); break;
        default: throw noNumbers();
      }
    }
  }

  float[] read(ByteBuffer memory) {
    float[] values = new float[size];
    if (tensor.type == Tensor.FLOAT32 && places == null) {
      memory.asFloatBuffer().get(values);
      return values;
    }
    int zeroPoint = tensor.zeroPoint;
    for (int i = 0; i < size; i++) {
      int at = place(i);
      switch (tensor.type) {
        case Tensor.FLOAT32: values[i] = memory.getFloat(4 * at); break;
        case Tensor.INT32: values[i] = memory.getInt(4 * at); break;
        case Tensor.BOOL8: values[i] = memory.get(at); break;
        case Tensor.QUANT8:
          values[i] = ((memory.get(at) & 0xff) - zeroPoint) * tensor.scale;
          break;
        case Tensor.QUANT8_SIGNED: values[i] = (memory.get(at) - zeroPoint) * tensor.scale; break;
        default: throw noNumbers();
      }
    }
    return values;
  }

  private byte quantised(float value, int least, int most) {
    double integer = Math.rint(value / tensor.scale) + tensor.zeroPoint;
    return (byte) (int) Math.max(least, Math.min(most, integer));
  }

  private UnsupportedOperationException noNumbers() {
    return new UnsupportedOperationException(
        "\"" + tensor.name + "\" has elements of NNAPI's type " + tensor.type
            + ", which are no float here: use the buffers, input() and output()");
  }
}
