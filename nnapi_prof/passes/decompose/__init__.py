"""What NNAPI has no operation for becomes several operations that it has."""
