package android.content.res;

import android.os.ParcelFileDescriptor;
import java.io.Closeable;

public class AssetFileDescriptor implements Closeable {
  public ParcelFileDescriptor getParcelFileDescriptor() {
    throw new UnsupportedOperationException();
  }

  public long getStartOffset() {
    throw new UnsupportedOperationException();
  }

  public long getLength() {
    throw new UnsupportedOperationException();
  }

  @Override
  public void close() {}
}
