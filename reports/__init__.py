"""Tables, figures and reports: everything for reading, nothing that measures.

:mod:`~nnapi_prof.reports.data` holds what every form of a report is made from;
:mod:`~nnapi_prof.reports.frames` and the modules beside it (refusals, preferences, transfers,
history) turn it into tidy DataFrames, :mod:`~nnapi_prof.reports.figures` and
:mod:`~nnapi_prof.reports.figures_plan` draw these, :mod:`~nnapi_prof.reports.html` writes the page.

Nothing is imported here: pandas, matplotlib and jinja2 load when a module that needs them does.
"""
