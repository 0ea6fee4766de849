package android.os;

import java.io.Closeable;
import java.io.FileDescriptor;
import java.io.IOException;

public class ParcelFileDescriptor implements Closeable {
  public static ParcelFileDescriptor fromFd(int file) throws IOException {
    throw new UnsupportedOperationException();
  }

  public FileDescriptor getFileDescriptor() {
    throw new UnsupportedOperationException();
  }

  public int getFd() {
    throw new UnsupportedOperationException();
  }

  public int detachFd() {
    throw new UnsupportedOperationException();
  }

  @Override
  public void close() throws IOException {}
}
