"""Finds what would make a plan faster: hindrances, rewrites in PyTorch, and plans as if they were
done.

Neither devices nor files: models, costs and plans in, advice out.
"""
