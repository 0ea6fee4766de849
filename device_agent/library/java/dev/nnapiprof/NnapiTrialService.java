package dev.nnapiprof;

import android.app.Service;
import android.content.Intent;
import android.os.Binder;
import android.os.IBinder;
import android.os.Parcel;
import android.os.Process;
import android.os.RemoteException;

/** Tries segments in a process of its own, which a driver may crash: {@link NnapiTrial} binds it. */
public final class NnapiTrialService extends Service {
  static final int SERVE = IBinder.FIRST_CALL_TRANSACTION;
  static final int FILES = 3;

  @Override
  public IBinder onBind(Intent intent) {
    return new Binder() {
      @Override
      protected boolean onTransact(int code, Parcel data, Parcel reply, int flags)
          throws RemoteException {
        if (code != SERVE) {
          return super.onTransact(code, data, reply, flags);
        }
        int[] files = new int[FILES];
        for (int i = 0; i < FILES; i++) {
          files[i] = data.readFileDescriptor().detachFd();
        }
        new Thread(
                () -> {
                  NnapiModel.serveTrial(files);
                  Process.killProcess(Process.myPid()); // the next trial has a new process
                })
            .start();
        return true;
      }
    };
  }
}
