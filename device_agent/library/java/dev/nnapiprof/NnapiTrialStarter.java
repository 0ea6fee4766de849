package dev.nnapiprof;

/** Has another process try segments: {@link NnapiTrial} in an app. */
public interface NnapiTrialStarter {
  /**
   * Hands these descriptors to a new process that calls {@link NnapiModel#serveTrial}. Called again
   * after each process that came to its end.
   *
   * @return false: there is none
   */
  boolean start(int[] files);

  /** Is called when the trial is over. */
  void end();
}
