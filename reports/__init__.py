"""Tables, figures and the HTML report: everything for reading, nothing that measures.

Nothing is imported here: pandas, matplotlib and jinja2 load when a module that needs them does
(:mod:`~nnapi_prof.reports.frames`, :mod:`~nnapi_prof.reports.figures`,
:mod:`~nnapi_prof.reports.html`).
"""
