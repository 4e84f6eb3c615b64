"""`rhino check tests/zoo/programs/gpt2.py --mesh 2x4`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import models

program = models.gpt2
