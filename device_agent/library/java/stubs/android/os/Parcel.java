package android.os;

import java.io.FileDescriptor;

public final class Parcel {
  public static Parcel obtain() {
    throw new UnsupportedOperationException();
  }

  public void recycle() {}

  public void writeFileDescriptor(FileDescriptor file) {}

  public ParcelFileDescriptor readFileDescriptor() {
    throw new UnsupportedOperationException();
  }
}
