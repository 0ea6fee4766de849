"""Finds problems that prevent measuring, on this host and on a phone, and the remedy for each.

One file for each theme; each check is one function that returns what it found. Nothing is changed
on the host; on a phone the agent is put where it can be had without building it.
"""
