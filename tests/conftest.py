"""Makes `tools` importable, which is never installed."""

import sys
from pathlib import Path

# behind everything installed, so that only what is nowhere else comes from the tree
sys.path.append(str(Path(__file__).parents[1]))
