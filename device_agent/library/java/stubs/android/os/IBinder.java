package android.os;

public interface IBinder {
  int FIRST_CALL_TRANSACTION = 1;
  int FLAG_ONEWAY = 1;

  boolean transact(int code, Parcel data, Parcel reply, int flags) throws RemoteException;
}
