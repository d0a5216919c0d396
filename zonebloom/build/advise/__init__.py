"""`whatif`: what an index would cost and save, told from a sample before anything is built.

`sample` reads and hashes some zones, `model` has the formulas, `forecast` what comes out; `writer` looks at how files
come and are written, `rewrites` measures other ways of writing them.
"""

from zonebloom.build.advise.forecast import Forecast, Option, Verdict
from zonebloom.build.advise.model import FPPS, whatif

__all__ = ["FPPS", "Forecast", "Option", "Verdict", "whatif"]
