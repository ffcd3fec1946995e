"""Lets `python -m etprof` run the command."""

from __future__ import annotations

import sys

from etprof.cli import main

sys.exit(main())
