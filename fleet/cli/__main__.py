"""``python -m fleet.cli`` is the same as ``fleet``."""

import sys

from fleet.cli import main

sys.exit(main())
