"""Device and units -> rows of the cost table: what is worth measuring, and measuring it."""
