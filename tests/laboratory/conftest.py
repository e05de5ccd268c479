"""The fixtures that cqrepl has for others, as `-p cqrepl.testing.plugin` would load them."""

from cqrepl.testing.plugin import cq_cluster as cq_cluster
from cqrepl.testing.plugin import cq_pair as cq_pair
from cqrepl.testing.plugin import cq_queue as cq_queue
