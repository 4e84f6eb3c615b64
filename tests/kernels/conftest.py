"""Kernels run in Triton's interpreter here; Triton reads the variable when its own helpers are defined."""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
