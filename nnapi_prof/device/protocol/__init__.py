"""The agent's protocol (device_agent/PROTOCOL.md): requests out, results in, both as data."""
