"""Device labs: the phones of many hosts, measured side by side through Dask into one cost table."""
