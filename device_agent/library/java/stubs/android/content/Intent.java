package android.content;

public class Intent {
  public Intent(Context context, Class<?> type) {}
}
