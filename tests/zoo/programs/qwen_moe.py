"""`rhino check tests/zoo/programs/qwen_moe.py --mesh 2x2`"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import own_models

program = own_models.qwen_moe
