"""A plan and its compiled regions on disk, and the module for stock PyTorch."""
