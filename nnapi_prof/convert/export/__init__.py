"""An NNAPI model for programs without nnapi-prof: as JSON, and as a C++ class."""
