"""What a run looks like: subscribers that turn its events into a console, a JSON summary and reports.

``view.py`` is the picture of a run that events add up to; ``plain.py`` and ``live.py`` show it as it
grows, ``recap.py`` at the end; ``console.py`` picks between them. ``host_report.py`` makes the report
document of each host. Nothing here decides anything about the run.
"""
