"""How values lie in memory: permutes and dim orders."""
