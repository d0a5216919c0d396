"""`whatif`: what an index would cost and save, by an index of a sample.

`sample` reads some zones, `trial` builds them in each way, `model` scales that to the data set, `forecast` says it.
"""

from zonebloom.indexing.whatif.advice import Advice, advice
from zonebloom.indexing.whatif.forecast import Forecast, Option, Verdict
from zonebloom.indexing.whatif.model import whatif

__all__ = ["Advice", "Forecast", "Option", "Verdict", "advice", "whatif"]
