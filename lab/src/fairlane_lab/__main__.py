"""`python -m fairlane_lab` is `fairlane-lab`."""

import sys

from .cli import main

sys.exit(main())
