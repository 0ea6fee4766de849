"""The public names for type checkers and editors; see __init__.py."""

from nnapi_prof.api import Devices as Devices
from nnapi_prof.api import Progress as Progress
from nnapi_prof.api import devices as devices
from nnapi_prof.api.advise import Advised as Advised
from nnapi_prof.api.advise import advise as advise
from nnapi_prof.api.bisect import bisect as bisect
from nnapi_prof.api.chips import estimate_chips as estimate_chips
from nnapi_prof.api.compare import Comparison as Comparison
from nnapi_prof.api.compare import compare as compare
from nnapi_prof.api.convert import convert_model as convert_model
from nnapi_prof.api.cost_tables import Phone as Phone
from nnapi_prof.api.cost_tables import calibrate as calibrate
from nnapi_prof.api.cost_tables import estimate as estimate
from nnapi_prof.api.cost_tables import read_costs as read_costs
from nnapi_prof.api.costs import Costs as Costs
from nnapi_prof.api.end_to_end import go as go
from nnapi_prof.api.model import Model as Model
from nnapi_prof.api.model import load as load
from nnapi_prof.api.pareto import Pareto as Pareto
from nnapi_prof.api.pareto import pareto as pareto
from nnapi_prof.api.plan import ModelPlan as ModelPlan
from nnapi_prof.api.plan import PredictedThroughput as PredictedThroughput
from nnapi_prof.api.plan import read_plan as read_plan
from nnapi_prof.api.planning import partition as partition
from nnapi_prof.api.profiling import profile as profile
from nnapi_prof.api.run import Result as Result
from nnapi_prof.api.run import run as run
from nnapi_prof.bisection.diagnosis import Bisection as Bisection
from nnapi_prof.costs import ConditionOptions as ConditionOptions
from nnapi_prof.device.state import Gates as Gates
from nnapi_prof.errors import NnapiProfError as NnapiProfError
from nnapi_prof.execution.objectives import Latency as Latency
from nnapi_prof.execution.objectives import Parallel as Parallel
from nnapi_prof.execution.objectives import Throughput as Throughput
from nnapi_prof.execution.objectives import Within as Within
from nnapi_prof.execution.profile import MeasureOptions as MeasureOptions
from nnapi_prof.fleet.choose import fleet as fleet
from nnapi_prof.fleet.plans import Fleet as Fleet
from nnapi_prof.graph.plan import Target as Target
from nnapi_prof.graph.unit import Unit as Unit

__version__: str
__all__: list[str]
