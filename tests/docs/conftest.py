"""Makes the documentation's scripts and the rule checker importable."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "docs"), str(ROOT / "tests" / "ir")]
