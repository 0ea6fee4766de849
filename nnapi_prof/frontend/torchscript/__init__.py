"""TorchScript -> straight fx graph."""
