package android.os;

public final class Looper {
  public static Looper myLooper() {
    throw new UnsupportedOperationException();
  }

  public static Looper getMainLooper() {
    throw new UnsupportedOperationException();
  }
}
