"""torch writes thousands of trace records per export, which pytest would collect for every test."""

from __future__ import annotations

import logging

logging.getLogger("torch.__trace").disabled = True
