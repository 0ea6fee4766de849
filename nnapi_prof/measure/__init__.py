"""Device and units -> cost rows."""
