"""Cost tables: measurements, their store, and the models that turn them into a region's latency.

Nothing is imported here: SQLAlchemy, pandas and scipy load when a module that needs them does.
"""
