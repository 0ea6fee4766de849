"""What stands in the way of measuring, on this host and on a phone, and how each is mended.

One file for each family of checks; each registers its functions with
:func:`~nnapi_prof.doctor.checks.host_checks` or
:func:`~nnapi_prof.doctor.checks.phone_checks` and yields findings. Nothing is changed on the
host; on a phone the agent is put where it can be had without building it.
"""
