package android.content;

public abstract class Context {
  public static final int BIND_AUTO_CREATE = 1;

  public boolean bindService(Intent service, ServiceConnection connection, int flags) {
    throw new UnsupportedOperationException();
  }

  public void unbindService(ServiceConnection connection) {
    throw new UnsupportedOperationException();
  }
}
