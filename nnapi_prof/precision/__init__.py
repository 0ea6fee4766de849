"""Float models in 8 bits: what calibration says of their values, and the programs made of that."""
