"""Does an image run on a host, and why not? Pure rules over a subject (host), an image and options.

:func:`fleet.audit.compatibility.subject.subject_of` takes from facts what rules read;
:func:`fleet.audit.compatibility.verdict.judge` gives the verdict. The rules are in ``rules/``, one file per theme, all
of them in :mod:`fleet.audit.compatibility.registry`.
"""
