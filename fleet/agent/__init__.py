"""What runs on a host: Python 3.9 or later, standard library only, imports nothing of the controller.

``session`` answers the controller over one SSH channel; ``worker`` applies a plan on its own, with a
``journal`` and a ``lease``; ``resources`` are the primitive things that can be made true; ``facts`` is
what is true. ``protocol`` holds the message types, which the controller imports too.
"""
