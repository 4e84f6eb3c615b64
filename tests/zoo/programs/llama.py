"""`rhino check tests/zoo/programs/llama.py --mesh 2x4`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import models

program = models.llama
