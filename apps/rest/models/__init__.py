"""Bodies of the REST API, by resource. Units are in the names; racks and planes go by name."""

from apps.rest.models.base import *
from apps.rest.models.conditions import *
from apps.rest.models.controllers import *
from apps.rest.models.decisions import *
from apps.rest.models.demand import *
from apps.rest.models.devices import *
from apps.rest.models.drift import *
from apps.rest.models.events import *
from apps.rest.models.policy import *
from apps.rest.models.problems import *
from apps.rest.models.reconfigurations import *
from apps.rest.models.reservations import *
from apps.rest.models.topology import *
