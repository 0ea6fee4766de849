package android.os;

public class Binder implements IBinder {
  @Override
  public final boolean transact(int code, Parcel data, Parcel reply, int flags)
      throws RemoteException {
    return onTransact(code, data, reply, flags);
  }

  protected boolean onTransact(int code, Parcel data, Parcel reply, int flags)
      throws RemoteException {
    throw new UnsupportedOperationException();
  }
}
