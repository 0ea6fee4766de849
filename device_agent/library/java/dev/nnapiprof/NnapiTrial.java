package dev.nnapiprof;

import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
import android.os.IBinder;
import android.os.Looper;
import android.os.Parcel;
import android.os.ParcelFileDescriptor;
import android.os.RemoteException;
import java.io.IOException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Starts {@link NnapiTrialService} for each process that a trial needs: Android's drivers are
 * reached by binder, which only a process that the system made may use.
 */
public final class NnapiTrial implements NnapiTrialStarter {
  private static final int ATTEMPTS = 5;
  private static final long PAUSE_MS = 200;
  private static final long BIND_LIMIT_MS = 10_000;

  private final Context context;
  private Connection connection;

  public NnapiTrial(Context context) {
    this.context = context;
  }

  /** One binding, whose service is there at some time. */
  private static final class Connection implements ServiceConnection {
    final LinkedBlockingQueue<IBinder> services = new LinkedBlockingQueue<>();

    @Override
    public void onServiceConnected(ComponentName name, IBinder service) {
      services.add(service);
    }

    @Override
    public void onServiceDisconnected(ComponentName name) {
      // The library sees the end of the process by itself.
    }
  }

  /** Hands the files to a new process; false on the main thread, which a binding would wait for. */
  @Override
  public boolean start(int[] files) {
    if (Looper.myLooper() == Looper.getMainLooper()) {
      return false;
    }
    for (int i = 0; i < ATTEMPTS; i++) {
      end();
      try {
        if (attempt(files)) {
          return true;
        }
        Thread.sleep(PAUSE_MS); // the system may not know yet that the last process is gone
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        return false;
      }
    }
    return false;
  }

  private boolean attempt(int[] files) throws InterruptedException {
    connection = new Connection();
    Intent intent = new Intent(context, NnapiTrialService.class);
    if (!context.bindService(intent, connection, Context.BIND_AUTO_CREATE)) {
      return false;
    }
    IBinder service = connection.services.poll(BIND_LIMIT_MS, TimeUnit.MILLISECONDS);
    if (service == null) {
      return false;
    }
    Parcel data = Parcel.obtain();
    try {
      for (int file : files) {
        try (ParcelFileDescriptor copy = ParcelFileDescriptor.fromFd(file)) {
          data.writeFileDescriptor(copy.getFileDescriptor());
        }
      }
      return service.transact(NnapiTrialService.SERVE, data, null, IBinder.FLAG_ONEWAY);
    } catch (RemoteException | IOException error) {
      return false; // this process is gone: the next attempt has another
    } finally {
      data.recycle();
    }
  }

  @Override
  public void end() {
    if (connection != null) {
      context.unbindService(connection);
    }
    connection = null;
  }
}
