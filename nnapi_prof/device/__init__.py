"""Reaching a device and its agent: transports, install, requests out, results in."""
