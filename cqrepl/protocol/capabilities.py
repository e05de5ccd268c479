"""The names of the capabilities that the core announces, and of those that it looks for."""

from typing import Final

from cqrepl.kernel.chain import has_chains

QUEUES_CAPABILITY: Final = "queues"
ENDED_CAPABILITY: Final = "ended"
STOPS_CAPABILITY: Final = "stops"
LINEAGE_CAPABILITY: Final = "lineage"
RUNS_CAPABILITY: Final = "runs"  # unless it is switched off
IDENTITY_CAPABILITY: Final = "identity"  # only with the one before: a copy takes one on proof
LEVELS_CAPABILITY: Final = "levels"
TAILERS_CAPABILITY: Final = "tailers"
EPOCHS_CAPABILITY: Final = "epochs"  # only with lineage: what a copy has too much is cut off first
MERGED_CAPABILITY: Final = "merged"  # only with the one before: old epochs may have merged
MEMBERS_CAPABILITY: Final = "members"  # epochs may name the hosts that have copies
CORE_CAPABILITIES: Final = frozenset(
    {
        QUEUES_CAPABILITY,
        ENDED_CAPABILITY,
        STOPS_CAPABILITY,
        LEVELS_CAPABILITY,
        TAILERS_CAPABILITY,
    }
) | (
    frozenset(
        {
            LINEAGE_CAPABILITY,
            IDENTITY_CAPABILITY,
            EPOCHS_CAPABILITY,
            MERGED_CAPABILITY,
            MEMBERS_CAPABILITY,
        }
    )
    if has_chains()
    else frozenset()
)
